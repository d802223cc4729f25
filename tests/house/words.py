#!/usr/bin/env python3
"""Pages stay short enough to be read: no page has more words than its limit here, and all together no more than ALL.

A page that grows says something twice, or has figures that belong in a CSV beside its bench. Ends with
`N passed, N failed, 0 skipped`: one for every page, and one for all.
"""
import pathlib
import subprocess
import sys

ALL, MOST = 50_000, 3_000
LIMITS = {
    "README.md": 1_400,
    "actors/http/README.md": 4_500,  # half of it are tables that a test compares with the code
    "storage/objects/README.md": 3_300,
    "tests/bench/README.md": 3_000,
    "tests/bench/SIMULATION.md": 4_600,
}


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    pages = subprocess.run(["git", "-C", root, "ls-files", "*.md"], capture_output=True, text=True, check=True).stdout.split()
    counts = {p: len((root / p).read_text().split()) for p in pages if (root / p).exists()}
    failed = 0
    for page, words in sorted(counts.items()):
        if words > LIMITS.get(page, MOST):
            print(f"{page}: {words} words, {LIMITS.get(page, MOST)} at most")
            failed += 1
    for page in LIMITS.keys() - counts.keys():
        print(f"{page}: has a limit and is not there")
        failed += 1
    total = sum(counts.values())
    print(f"{total} words on {len(counts)} pages, {ALL} at most")
    failed += total > ALL
    assert len(counts) > 20, "it would find nothing"
    print(f"{len(counts) + 1 - failed} passed, {failed} failed, 0 skipped")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
