#!/usr/bin/env python3
"""Sums test results that CTest wrote as JUnit files and prints `N passed, N failed, N skipped` as the last line.

A doctest binary counts as its test cases, a script that ends with such a line itself as what that line says, any other
test as one. A campaign of many runs is one test: what it did stands in a line of its own, `RUNS: …` in its output, which is
repeated here. A line `SKIPPED: reason` in the output of a test is one skipped case, and is repeated here too.

    --stages FILE     tests that are registered only where something is installed: one that is missing is a skip
    --permitted FILE  skips that are no failure, with the reason
    --strict          any other skip is a failure (CI, whose machine has all there is)

Exits 1 if anything failed, or if nothing ran.
"""

import argparse
import re
import sys
import xml.etree.ElementTree as xml

DOCTEST = re.compile(r"^\[doctest\] test cases:\s*\d+ \|\s*(\d+) passed \|\s*(\d+) failed", re.MULTILINE)
SCRIPT = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped\s*\Z", re.MULTILINE)
SKIPPED = re.compile(r"^.*?\bSKIPPED: (.+)$", re.MULTILINE)
RUNS = re.compile(r"^RUNS: (.+)$", re.MULTILINE)


def count(case):
    """Returns (passed, failed, reasons of skips) of one CTest test."""
    name = case.get("name")
    output = case.findtext("system-out") or ""
    if case.get("status") in ("notrun", "disabled"):
        skipped = case.find("skipped")
        reason = (skipped.get("message") if skipped is not None else None) or "CTest did not run it"
        # A binary that is missing is a failure, not a choice.
        if "Unable to find" in reason or "not available" in reason.lower():
            return 0, 1, []
        reasons = SKIPPED.findall(output) or [reason]
        return 0, 0, [f"{name}: {r}" for r in reasons]
    ok = case.get("status") == "run" and case.find("failure") is None
    reasons = [f"{name}: {r.strip()}" for r in SKIPPED.findall(output)]
    summaries = DOCTEST.findall(output)
    script = SCRIPT.search(output.rstrip())
    if summaries:
        passed, failed = map(int, summaries[-1])
        passed = max(passed - len(reasons), 0)
        # It summed up and failed none, and yet CTest calls it failed: a crash at exit, or a leak.
        return passed, failed if ok else max(failed, 1), reasons
    if script:
        passed, failed, skipped = map(int, script.groups())
        reasons += [f"{name}: see its output"] * max(skipped - len(reasons), 0)
        return passed, failed if ok else max(failed, 1), reasons
    if ok:
        return (0, 0, reasons) if reasons else (1, 0, [])
    return 0, 1, reasons


def table(path):
    """Rows of `first  second` of a file whose other lines are comments or empty; two spaces divide them."""
    with open(path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").partition("  ") for line in file if line.strip() and not line.startswith("#")]
    return [(first, second.strip()) for first, _, second in rows]


def missing_stages(stages, seen):
    return [f"{name}: not registered; it needs {needs}" for name, needs in stages if name not in seen]


def allowed(reason, permitted):
    return any(reason.startswith(begin) for begin, _ in permitted)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--skip", action="append", default=[], help="reason for something that was skipped elsewhere")
    parser.add_argument("--fail", action="append", default=[], help="something that failed beside the tests")
    parser.add_argument("--stages", help="what is registered only where something is installed")
    parser.add_argument("--permitted", help="skips that are no failure")
    parser.add_argument("--strict", action="store_true", help="any other skip is a failure")
    parser.add_argument("files", nargs="+", help="JUnit files of CTest")
    args = parser.parse_args()
    passed, failed = 0, len(args.fail)
    for what in args.fail:
        print(f"FAILED  {what}")
    reasons, seen = list(args.skip), set()
    for path in args.files:
        for case in xml.parse(path).getroot().iter("testcase"):
            name = case.get("name")
            seen.add(name)
            p, f, r = count(case)
            if f:
                print(f"FAILED  {name}: {f} failed")
            for runs in RUNS.findall(case.findtext("system-out") or ""):
                print(f"RUNS    {name}: {runs}")
            passed, failed, reasons = passed + p, failed + f, reasons + r
    if args.stages:
        reasons += missing_stages(table(args.stages), seen)
    permitted = table(args.permitted) if args.permitted else []
    for reason in reasons:
        refused = args.strict and not allowed(reason, permitted)
        failed += refused
        print(f"{'FAILED  skipped without leave,' if refused else 'SKIPPED'} {reason}")
    print(f"{passed} passed, {failed} failed, {sum(not args.strict or allowed(r, permitted) for r in reasons)} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
