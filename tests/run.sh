#!/usr/bin/env bash
# Installs, builds and runs all tests; the last line says `N passed, N failed, N skipped`.
#
#   tests/run.sh                        everything
#   tests/run.sh --label unit           only the tests with this CTest label
#   tests/run.sh --sanitize asan        AddressSanitizer and UBSan (or: tsan), in a build folder of its own
#   tests/run.sh --fuzz-seconds 60      how long each fuzz target runs (default 3; 0: not at all)
#   tests/run.sh --fuzz-seed 0          other inputs each time (default 1: the same ones)
#   tests/run.sh --jobs 1               tests at the same time (default: two a processor, as most of them wait); those that measure time run alone
#
# Works from a clone with no build folder, and twice in a row. Exits nonzero if a test failed.
set -euo pipefail
cd "$(dirname "$0")/.."

label=
sanitize=
fuzz_seconds=3
fuzz_seed=1
jobs=$(($(nproc) * 2))
strict=OFF  # CI: a warning, and a skip that tests/permitted_skips.txt does not name, is a failure
[[ ${CI:-} != true ]] || strict=ON
need_value() { [[ $# -ge 2 ]] || { echo "run.sh: $1 needs a value" >&2; exit 2; }; }
while (($#)); do
  case "$1" in
    --label) need_value "$@"; label=$2; shift 2 ;;
    --sanitize) need_value "$@"; sanitize=$2; shift 2 ;;
    --fuzz-seconds) need_value "$@"; fuzz_seconds=$2; shift 2 ;;
    --fuzz-seed) need_value "$@"; fuzz_seed=$2; shift 2 ;;
    --jobs) need_value "$@"; jobs=$2; shift 2 ;;
    -h | --help) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "run.sh: unknown argument '$1' (--help lists the known ones)" >&2; exit 2 ;;
  esac
done
[[ $fuzz_seconds =~ ^[0-9]+$ && $fuzz_seed =~ ^[0-9]+$ && $jobs =~ ^[1-9][0-9]*$ ]] || {
  echo "run.sh: --fuzz-seconds, --fuzz-seed and --jobs take a number" >&2
  exit 2
}

instrument=()
sanitize_with() {  # how to configure for this sanitizer, and the options that it reads
  case "$1" in
    asan)
      instrument=(-DMOONCAF_SANITIZE=address,undefined)
      export ASAN_OPTIONS=${ASAN_OPTIONS:-strict_string_checks=1:detect_stack_use_after_return=1}
      export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$PWD/config/lsan.supp}
      export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
      ;;
    tsan)
      instrument=(-DMOONCAF_SANITIZE=thread)
      export TSAN_OPTIONS=${TSAN_OPTIONS:-suppressions=$PWD/config/tsan.supp:second_deadlock_stack=1}
      ;;
    *) echo "run.sh: --sanitize takes asan or tsan" >&2; exit 2 ;;
  esac
}
[[ -z $sanitize ]] || sanitize_with "$sanitize"
build=build${sanitize:+-$sanitize}
benches=ON  # compiled, so that they stay true; no test runs one
[[ -z $sanitize ]] || benches=OFF

# ---- stages ----------------------------------------------------------------------------------------------------------

stage_name=
finish_stage() {
  [[ -z $stage_name ]] || printf -- '-- %s: %d s\n' "$stage_name" $((SECONDS - stage_begin))
  stage_name=
}
begin_stage() {
  finish_stage
  stage_name=$1
  stage_begin=$SECONDS
  printf '\n== %s\n' "$1"
}
give_up() {
  printf '\nrun.sh: the stage "%s" failed\n0 passed, 1 failed, 0 skipped\n' "$stage_name"
  exit 1
}
quietly() {  # shows a command's output only if it fails
  local log
  log=$(mktemp)
  if "$@" >"$log" 2>&1; then rm -f "$log"; else cat "$log" >&2; rm -f "$log"; return 1; fi
}

begin_stage "packages"
packages_for=()
((fuzz_seconds == 0)) || packages_for=(--tests)
examples/install_packages.sh "${packages_for[@]}" || give_up

begin_stage "model"
MOONCAF_MODEL=$(examples/fetch_model.sh) || give_up
export MOONCAF_MODEL
echo "$MOONCAF_MODEL"

begin_stage "configure"
quietly cmake -G Ninja -B "$build" -S . -DCMAKE_BUILD_TYPE=RelWithDebInfo -DMOONCAF_UNITY=ON -DMOONCAF_BENCH="$benches" -DMOONCAF_WERROR="$strict" "${instrument[@]}" || give_up
echo "$build"

begin_stage "build"
NINJA_STATUS='[%f/%t %es] ' ninja -j "$(nproc)" -C "$build" || give_up

# Parsers of foreign bytes are fuzzed, and the state machines of requests, the store and the campaign that plays them run,
# under AddressSanitizer and UBSan: one build folder, of clang, which has a fuzzer. Most tests wait for something, so it is
# compiled beside them, with what they leave of the processors.
fuzz_skip=
targets=() chosen=()
if [[ -z $sanitize && " unit fuzz " == *" ${label:-unit} "* ]]; then
  begin_stage "configure for AddressSanitizer and UBSan"
  if clang=$(command -v clang++-14 || command -v clang++); then
    quietly cmake -G Ninja -B build-fuzz -S . -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_COMPILER="$clang" \
      -DMOONCAF_UNITY=ON -DMOONCAF_FUZZ=ON -DMOONCAF_FUZZ_SECONDS="$fuzz_seconds" -DMOONCAF_FUZZ_SEED="$fuzz_seed" || give_up
    if [[ $label != fuzz ]]; then
      targets+=(mooncaf_{request,storage}_tests mooncaf_campaign)
      chosen+=('request|storage|campaign')
    fi
    if ((fuzz_seconds > 0)) && [[ $label != unit ]]; then
      mapfile -t -O ${#targets[@]} targets < <(ctest --test-dir build-fuzz -N -L fuzz | sed -n 's/^ *Test *#[0-9]*: fuzz_\(.*\)$/mooncaf_\1_fuzz/p')
      chosen+=('fuzz_.*')
    fi
    echo build-fuzz
  else
    fuzz_skip="no clang++ was found, so no fuzz target ran"
  fi
fi

begin_stage "tests"
results=$(mktemp -d)
scratch=$(mktemp -d)  # whatever a test forgets there is told, and is a failure
chmod 711 "$scratch"  # tests of strangers run as another user
beside=
trap '[[ -z $beside ]] || kill "$beside" 2>/dev/null || true; rm -rf "$results" "$scratch"' EXIT
if ((${#targets[@]} > 0)); then
  : >"$results/beside.log"  # there, however soon it is looked at
  NINJA_STATUS='[%f/%t %es] ' nice -n 19 ninja -j "$(nproc)" -C build-fuzz "${targets[@]}" >>"$results/beside.log" 2>&1 &
  beside=$!
fi
export TMPDIR=$scratch
ctest_options=(--output-on-failure --timeout 600 --no-tests=error --test-output-size-passed 4000000 --test-output-size-failed 4000000)
selection=(-LE fuzz)
[[ -z $label ]] || selection+=(-L "$label")
status=0
[[ $label == fuzz ]] || ctest --test-dir "$build" -j "$jobs" "${ctest_options[@]}" "${selection[@]}" --output-junit "$results/tests.xml" || status=1

if [[ -n $beside ]]; then
  begin_stage "AddressSanitizer and UBSan: requests, storage, campaign, and fuzz targets of ${fuzz_seconds} s each"
  tail -n 1 --pid="$beside" -f "$results/beside.log"
  wait "$beside" || { beside=; cat "$results/beside.log" >&2; give_up; }
  beside=
  sanitize_with asan
  ctest --test-dir build-fuzz -j "$(nproc)" "${ctest_options[@]}" -R "^($(IFS='|'; echo "${chosen[*]}"))\$" --output-junit "$results/asan.xml" || status=1
fi
finish_stage

printf "\n== result (%d s in all)\n" "$SECONDS"
rules=(--permitted tests/permitted_skips.txt)
[[ $strict == OFF ]] || rules+=(--strict)
[[ -n $label$sanitize ]] || ((fuzz_seconds == 0)) || rules+=(--stages tests/stages.txt)
forgotten=$(find "$scratch" -mindepth 1 -maxdepth 1 -printf '%f ')
python3 tests/support/count_results.py "${rules[@]}" ${forgotten:+--fail "left in the temporary directory: $forgotten"} ${fuzz_skip:+--skip "$fuzz_skip"} "$results"/*.xml || status=1
exit $status
