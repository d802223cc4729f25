#!/usr/bin/env bash
# What takes too long for every change: all unit and actor tests under AddressSanitizer with UBSan and under ThreadSanitizer,
# and clang-tidy. Takes an hour or two of two cores. A row for each goes to tests/sanitizers.csv, with the commit it ran on;
# tests/house/sanitizers.py says when that is too old.
#
#   tests/nightly.sh               all of it
#   tests/nightly.sh asan          one of asan, tsan, tidy
set -euo pipefail
cd "$(dirname "$0")/.."
[[ -z $(git status --porcelain --untracked-files=no) ]] || { echo "nightly: commit first: a row names the commit it ran on" >&2; exit 2; }
commit=$(git rev-parse --short=12 HEAD)
what=("$@")
((${#what[@]})) || what=(asan tsan tidy)
status=0
rows=()

# Rows are written at the end: a test that reads them runs here, too.
note() {  # what, labels, outcome
  rows+=("$(printf '%s,%s,%s,"%s","%s"' "$(date -I)" "$commit" "$1" "$2" "$3")")
  echo "${rows[-1]}"
  [[ $3 == *" 0 failed"* || $3 == clean ]] || status=1
}
trap '((${#rows[@]} == 0)) || printf "%s\n" "${rows[@]}" >>tests/sanitizers.csv' EXIT

for one in "${what[@]}"; do
  case "$one" in
    asan | tsan)
      for label in unit actors; do
        last=$(tests/run.sh --sanitize "$one" --label "$label" --fuzz-seconds 0 | tee >(cat >&2) | tail -n 1) || true
        note "$one" "$label" "$last"
      done
      ;;
    tidy)
      # A folder of its own, where a source is compiled by itself; version 16 knows all of C++20 that the sources use.
      cmake -G Ninja -B build-tidy -S . -DMOONCAF_TESTS=OFF >/dev/null
      found=$(git ls-files 'runtime/*.cpp' 'storage/*.cpp' 'transport/*.cpp' 'actors/*.cpp' 'config/*.cpp' 'gpu/host/*.cpp' |
        xargs -P "$(nproc)" -n 4 clang-tidy-16 -p build-tidy --quiet --extra-arg=-Wno-unknown-warning-option 2>/dev/null) || true
      # Once what a header is warned of; and clang does not know each of GCC's names for what a processor can.
      found=$(grep -E '(warning|error):' <<<"$found" | grep -v 'invalid cpu feature string' | sort -u) || true
      if [[ -z $found ]]; then
        note tidy sources clean
      else
        printf '%s\n' "$found"
        note tidy sources "$(wc -l <<<"$found") warnings"
      fi
      ;;
    *) echo "nightly: unknown part '$one' (asan, tsan, tidy)" >&2; exit 2 ;;
  esac
done
exit $status
