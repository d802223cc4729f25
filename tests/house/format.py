#!/usr/bin/env python3
"""Every source has the form that clang-format-14 gives it with the project's .clang-format.

Ends with `N passed, N failed, N skipped`: one for every source; all are skipped where there is no clang-format-14.
"""
import pathlib
import re
import shutil
import subprocess
import sys


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    if not shutil.which("clang-format-14"):
        print("SKIPPED: no clang-format-14 is installed\n0 passed, 0 failed, 1 skipped")
        return 0
    names = subprocess.run(["git", "-C", root, "ls-files", "*.cpp", "*.hpp", "*.cu", "*.cuh", "*.h"],
                           capture_output=True, text=True, check=True).stdout.split()
    assert len(names) > 500, "it would find nothing"
    checked = subprocess.run(["clang-format-14", "--dry-run", "-Werror", *names], cwd=root, capture_output=True, text=True)
    wrong = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error", checked.stderr, re.MULTILINE)))
    for name in wrong:
        print(f"{name}: run `clang-format-14 -i {name}`")
    failed = len(wrong) if checked.returncode else 0
    print(f"{len(names) - failed} passed, {failed or bool(checked.returncode):d} failed, 0 skipped")
    return checked.returncode != 0


if __name__ == "__main__":
    sys.exit(main())
