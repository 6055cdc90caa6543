"""What was fuzzed is counted where it happens, travels with the tests' reports, and is printed at the end."""

from __future__ import annotations

from collections import Counter

from small import LONG

FEWEST = 2000 if LONG else 1  # examples of every kind of file
FEWEST_NAMES = 500 if LONG else 1  # hostile names through every medium


def recorded(reporter, what):
    """{kind: count} of all tests, whichever process ran them."""
    found = Counter()
    for reports in reporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "teardown":
                for key, value in report.user_properties:
                    if key == what:
                        found[value[0]] += value[1]
    return found


def summarise(reporter):
    files, names, raw = (recorded(reporter, what) for what in ("fuzzed", "names", "unescaped"))
    if files:
        reporter.section("fuzzed files")
        for kind, count in sorted(files.items()):
            reporter.write_line(f"{kind:44s} {count:6d} examples")
        kinds = ("test_readers", "test_results_files")
        failed = [r for r in reporter.stats.get("failed", []) if any(kind in r.nodeid for kind in kinds)]
        outcome = f"{len(failed)} tests failed" if failed else "only SelfcalError came out"
        reporter.write_line(f"in all {sum(files.values())} examples of {len(files)} kinds; {outcome}")
    if names:
        reporter.section("hostile names")
        for medium, count in sorted(names.items()):
            reporter.write_line(f"{medium:44s} {count:6d} names, {raw[medium]} unescaped")
