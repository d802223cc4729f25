#!/bin/sh
# On a machine with an NVIDIA GPU: builds, holds the GPU to what every device promises, then measures it, and prints
# rows for the bench page. Ends at the first step that fails: figures of wrong results are none.
#
#   tests/bench/gpu_session.sh [BUILD_FOLDER] [options of mooncaf_gpu_bench, such as --gpu 1 --tflops 312 --gb-per-s 2039]
#
# MOONCAF_GPU_MODELS: what to measure, dummy shapes with one type of weights; unset: Llama 3 8B and SmolLM2's shape.
# MOONCAF_MODEL: a GGUF file whose weights are loaded by ever more threads; unset: none is.
# MOONCAF_NO_BUILD: the folder is built already. Without a GPU: LD_LIBRARY_PATH=BUILD_FOLDER/tests/support/simt tries
# the script itself, on the processor.
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
[ $# -gt 0 ] && shift
gpu=0
previous=
for word in "$@"; do
  [ "$previous" = --gpu ] && gpu=$word
  previous=$word
done

say() { printf '\n## %s\n\n' "$1"; }

say "Machine"
date -u +%Y-%m-%d
git rev-parse --short HEAD 2>/dev/null || true
nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv -i "$gpu" || echo "no nvidia-smi"

if [ -z "${MOONCAF_NO_BUILD:-}" ]; then
  say "Build"
  cmake -G Ninja -B "$build" -S . -DCMAKE_BUILD_TYPE=Release -DMOONCAF_BENCH=ON
  ninja -C "$build" mooncaf_device_conformance_tests mooncaf_gpu_bench mooncaf_weights_bench
fi

say "What every device promises, on GPU $gpu"
MOONCAF_TEST_GPU=$gpu "$build/tests/conformance/mooncaf_device_conformance_tests"

for model in ${MOONCAF_GPU_MODELS:-dummy:llama3-8b,type=q4_0 dummy:llama3-8b,type=f16 dummy:smollm2-135m,type=q8_0}; do
  say "$model"
  "$build/tests/bench/mooncaf_gpu_bench" --model "$model" "$@"
done

if [ -n "${MOONCAF_MODEL:-}" ]; then
  say "Weights of $MOONCAF_MODEL"
  "$build/tests/bench/mooncaf_weights_bench" "$MOONCAF_MODEL" --gpu "$gpu"
fi
