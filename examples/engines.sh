#!/usr/bin/env bash
# Serves with servers of vLLM or SGLang behind mooncaf: a conductor with a gateway, and a worker in front of each server.
#
#   examples/engines.sh MODEL HOST:PORT[,NEWS[,REPLAY]]...
#
# MODEL is the folder that the servers serve. NEWS and REPLAY are a server's endpoints of --kv-events-config, as ZeroMQ writes them
# (tcp://127.0.0.1:5557); without them it is taken to hold what it computed last. HTTP is at 127.0.0.1:8000, or MOONCAF_HTTP.
# Ends all that it started when it is told to stop (Ctrl-C).
set -euo pipefail
cd "$(dirname "$0")/.."

if (($# < 2)) || [[ $1 == -h || $1 == --help ]]; then
  sed -n '2,8s/^# \{0,1\}//p' "$0"
  exit $(($# < 2 ? 2 : 0))
fi
model=$1
shift
binary=${MOONCAF_BINARY:-build/actors/mooncaf}
http=${MOONCAF_HTTP:-127.0.0.1:8000}
control=${MOONCAF_CONTROL:-127.0.0.1:7400}
[[ -x $binary ]] || { echo "engines.sh: $binary is not there; examples/quickstart.sh builds it" >&2; exit 1; }

started=()
trap 'trap - EXIT; kill "${started[@]}" 2>/dev/null; wait' EXIT
trap 'exit 0' INT TERM
common=(--mode engines --model "$model")
"$binary" --role conductor,gateway "${common[@]}" --listen "$control" --http "$http" --metrics-listen 127.0.0.1:0 &
started+=($!)
for server in "$@"; do
  IFS=, read -r at news replay <<<"$server"
  "$binary" --role engine "${common[@]}" --name "$at" --engine-at "$at" ${news:+--engine-events "$news"} ${replay:+--engine-replay "$replay"} \
    --join "$control" --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 &
  started+=($!)
done
# One that ends takes the others along; what was wrong is above.
wait -n "${started[@]}"
