"""How a claim is held against the table: one method against another, or against all of its rivals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from selfcal.experiments.compare.summary import Summary
from selfcal.experiments.compare.tables import Named, labels_in_words
from selfcal.report.columns import COLUMNS, Column


@dataclass(frozen=True)
class Finding:
    """One comparison behind a claim: did it come out as claimed (None: nothing is decided), and the numbers."""

    held: bool | None
    words: str
    where: str = ""  # with which labels

    def said(self, named: Named = str) -> str:
        """named: how the medium takes words of others."""
        return f"{named(self.where)}: {self.words}" if self.where else self.words

    @property
    def answer(self) -> str:
        return "undecided" if self.held is None else "yes" if self.held else "no"


Findings = tuple[Finding, ...]
Test = Callable[[Summary, Mapping[str, float]], Findings]
"""(all outcomes, measured costs of a step) -> what speaks for or against a claim; nothing if it was not tested."""

Where = Callable[[Summary], Sequence[str]]
"""The choices of labels that a claim is about."""


def everywhere(summary: Summary) -> list[str]:
    return summary.labels


def with_all_labels(summary: Summary) -> list[str]:
    complete = {r["labels"]: r["labelled"] >= r["reference_examples"] for r in summary.results}
    return [y for y in summary.labels if complete.get(y)]


def with_few_labels(summary: Summary) -> list[str]:
    """Choices of labels that leave images unlabelled."""
    return [y for y in summary.labels if y not in with_all_labels(summary)]


def with_fewest_labels(summary: Summary) -> list[str]:
    return with_few_labels(summary)[:1]


def beats(better: str, worse: str, metric: str, where: Where, or_equal: bool = False) -> Test:
    """A finding for each choice of labels."""
    column = COLUMNS[metric]

    def test(s: Summary, costs: Mapping[str, float]) -> Findings:
        findings = (versus(s, better, worse, y, column, or_equal) for y in where(s))
        return tuple(f for f in findings if f is not None)

    return test


def beats_all(favourite: str, rivals: Sequence[str], metric: str, where: Where) -> Test:
    column = COLUMNS[metric]

    def test(s: Summary, costs: Mapping[str, float]) -> Findings:
        findings = (best_of(s, favourite, rivals, y, column) for y in where(s))
        return tuple(f for f in findings if f is not None)

    return test


def each_of(*tests: Test) -> Test:
    """The findings of several tests, one after the other."""
    return lambda s, costs: tuple(finding for test in tests for finding in test(s, costs))


def versus(s: Summary, better: str, worse: str, labels: str, column: Column, or_equal: bool = False) -> Finding | None:
    """Does `better` have the better mean over the seeds both have, and is it better on most of them?

    or_equal: a tie as printed is as good.
    """
    pairs = s.paired(better, worse, labels, column)
    if not pairs:
        return None
    sign, digits = column.sign, column.digits
    a, b = (sum(values) / len(pairs) for values in zip(*pairs, strict=True))
    wins = sum(sign * x > sign * y or (or_equal and x == y) for x, y in pairs)
    seeds = f"{wins} of {len(pairs)} seeds" if len(pairs) > 1 else "one seed"
    where = labels_in_words(s, labels)
    words = f"{column.head} {better} {column.written(a)}, {worse} {column.written(b)} ({seeds})"
    if round(a, digits) == round(b, digits):
        return Finding(True if or_equal else None, words, where)
    ahead = sign * a > sign * b
    most = 2 * (wins if ahead else len(pairs) - wins) > len(pairs)
    return Finding(ahead if most else None, words, where)


def best_of(s: Summary, favourite: str, rivals: Sequence[str], labels: str, column: Column) -> Finding | None:
    """Against every rival; the numbers are those of the toughest.

    A rival that has fewer seeds than the favourite is neither beaten nor ahead: while there is one, or one that
    has not been run, the claim can be refuted by the others but not hold.
    """
    duels = {m: f for m in rivals if (f := versus(s, favourite, m, labels, column)) is not None}
    if not duels:
        return None

    def lead(rival: str) -> float:
        pairs = s.paired(favourite, rival, labels, column)
        return sum(column.sign * (ours - theirs) for ours, theirs in pairs) / len(pairs)

    seeds = len(s.of(favourite, labels))
    verdicts = {m: f.held for m, f in duels.items() if len(s.paired(favourite, m, labels, column)) == seeds}
    wins, missing = sum(v is True for v in verdicts.values()), [m for m in rivals if m not in duels]
    words, where = (
        f"{duels[min(duels, key=lead)].words}; {wins} of {len(duels)} rivals beaten",
        labels_in_words(s, labels),
    )
    if missing:
        words += f"; not run: {', '.join(missing)}"
    if False in verdicts.values():
        return Finding(False, words, where)
    return Finding(True if wins == len(rivals) else None, words, where)
