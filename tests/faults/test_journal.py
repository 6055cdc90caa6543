"""log.jsonl: the same lines however a run came about."""

from __future__ import annotations

import json

from selfcal.training.journal import ROLLED_BACK, Journal


def written(tmp_path):
    journal = Journal(tmp_path / "log.jsonl", ["score", "classifier"])
    for step in (1, 2, 3):
        journal.append("score", step, {"dsm": 0.5})
    journal.append("score", 4, {"event": ROLLED_BACK, "to": 2, "dsm": float("nan")})
    for step in (3, 4):
        journal.append("score", step, {"dsm": 0.25})
    journal.append("classifier", 1, {"ce": 1.0})
    return journal


def steps(journal):
    return [(x["network"][0], x["step"]) for x in map(json.loads, journal.path.read_text().splitlines())]


def test_lines_after_a_checkpoint_are_cut(tmp_path):
    everything = [("s", 1), ("s", 2), ("s", 3), ("s", 4), ("s", 3), ("s", 4), ("c", 1)]
    for network, step, rollbacks, kept in [
        ("classifier", 0, 0, everything[:6]),
        ("classifier", 1, 0, everything),
        ("score", 4, 1, everything),
        ("score", 3, 1, [*everything[:5], ("c", 1)]),
        ("score", 2, 0, [*everything[:2], ("c", 1)]),
        ("score", 0, 0, [("c", 1)]),
    ]:
        (tmp_path / "log.jsonl").unlink(missing_ok=True)
        journal = written(tmp_path)
        journal.rewind(network, step, rollbacks)
        assert steps(journal) == kept, (network, step)


def test_networks_stay_in_their_order(tmp_path):
    """A score that is trained on after its newest checkpoint was lost writes its lines before the classifier's."""
    journal = written(tmp_path)
    journal.rewind("score", 2, 0)
    journal.append("score", 3, {"dsm": 0.5})
    journal.rewind("classifier", 1, 0)
    assert steps(journal) == [("s", 1), ("s", 2), ("s", 3), ("c", 1)]


def test_half_lines_and_foreign_lines_are_passed_over(tmp_path):
    journal = written(tmp_path)
    before = journal.path.read_bytes()
    with journal.path.open("ab") as stream:
        stream.write(
            b'{"network": "judge", "step": 1}\n[1]\n\xff\xfe\n{"network": "score", "step": "x"}\n{"network": "sc'
        )
    journal.rewind("classifier", 1, 0)
    assert journal.path.read_bytes() == before
    stamp = journal.path.stat().st_mtime_ns
    journal.rewind("classifier", 1, 0)
    assert journal.path.stat().st_mtime_ns == stamp, "what is right already is not written again"


def test_not_a_number_is_written_as_json_has_it(tmp_path):
    assert '"dsm": "nan"' in written(tmp_path).path.read_text()
