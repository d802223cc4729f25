#!/usr/bin/env python3
"""tests/sanitizers.csv names commits of this history, without a failure in the last run of each kind, and tests/README.md has
the date of that run.

Ends with `N passed, N failed, 0 skipped`, one for every kind of run.
"""
import csv
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = [("asan", "unit"), ("asan", "actors"), ("tsan", "unit"), ("tsan", "actors")]


def git(*arguments):
    return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True)


def has_history():
    """A copy without .git, or one with the last commit alone, cannot tell."""
    return git("rev-parse", "--is-shallow-repository").stdout.strip() == "false"


def problem(rows, kind, page):
    last = [r for r in rows if (r["with"], r["what"]) == kind][-1:]
    if not last:
        return "never ran"
    row = last[0]
    if has_history() and git("merge-base", "--is-ancestor", row["commit"], "HEAD").returncode != 0:
        return f"ran on {row['commit']}, which is no commit of this history"
    if " 0 failed" not in row["outcome"]:
        return f"its last run had {row['outcome']}"
    if f"{row['date']} at {row['commit'][:7]}" not in page:
        return f"tests/README.md does not say that it ran on {row['date']} at {row['commit'][:7]}"
    return None


def main():
    with open(ROOT / "tests/sanitizers.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    page = (ROOT / "tests/README.md").read_text(encoding="utf-8")
    found = {kind: problem(rows, kind, page) for kind in KINDS}
    for kind, why in found.items():
        if why:
            print(f"{' '.join(kind)}: {why}")
    bad = sum(1 for why in found.values() if why)
    print(f"{len(found) - bad} passed, {bad} failed, 0 skipped")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
