#!/usr/bin/env bash
# A cluster on this machine whose instances are groups of two processes, each with half of the model's layers: a prefill
# group, a decode group, and a gateway in front of them. Answers are, to the bit, those of one process with the whole model.
#
#   examples/groups.sh                      until Ctrl-C; clients talk to port 8000
#   examples/groups.sh --once               shows who has which layers, asks for one answer, and ends
#
# MOONCAF_MODEL names another model, MOONCAF_PORT another port for clients; MOONCAF_CONTROL_PORT and the two behind it
# (default 7400) are the cluster's own. Needs a build (examples/quickstart.sh makes one).
set -euo pipefail
cd "$(dirname "$0")/.."

once=
case "${1:-}" in
  --once) once=yes ;;
  '') ;;
  -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "groups.sh: unknown argument '$1' (--help lists the known ones)" >&2; exit 2 ;;
esac
mooncaf=${MOONCAF_BINARY:-build/actors/mooncaf}
[[ -x $mooncaf ]] || { echo "groups.sh: no $mooncaf; run examples/quickstart.sh first" >&2; exit 2; }
model=${MOONCAF_MODEL:-$(examples/fetch_model.sh)}
port=${MOONCAF_PORT:-8000} control=${MOONCAF_CONTROL_PORT:-7400}
logs=$(mktemp -d)
processes=()
end() {
  ((${#processes[@]} == 0)) || kill "${processes[@]}" 2>/dev/null || true
  wait || true
  rm -rf "$logs"
}
trap end EXIT

start() {  # NAME OPTION...: a process of the cluster, with its log in a file
  local name=$1
  shift
  "$mooncaf" --model "$model" --context-length 4096 --threads 1 --name "$name" --metrics-listen 127.0.0.1:0 "$@" >"$logs/$name" 2>&1 &
  processes+=($!)
}
await() {  # NAME TEXT: a line of its log
  until grep -q -- "$2" "$logs/$1"; do
    kill -0 "${processes[@]}" 2>/dev/null || { cat "$logs"/* >&2; exit 1; }
    sleep 0.1
  done
}

own=(--data-listen 127.0.0.1:0)
start front --role conductor,gateway --listen "127.0.0.1:$control" --http "127.0.0.1:$port"
for number in 1 2; do
  role=$([[ $number == 1 ]] && echo prefill || echo decode)
  start "$role-rank" --role rank --pipeline 2 --stage 1 --listen "127.0.0.1:$((control + number))" "${own[@]}"
  start "$role" --role "$role,cache" --ranks "127.0.0.1:$((control + number))" --prefill-instances 1 --join "127.0.0.1:$control" \
    --listen 127.0.0.1:0 "${own[@]}"
done
echo "- loading half of $model into each of four processes"
await prefill ' ready '
await decode ' ready '
until curl -sf "http://127.0.0.1:$port/health" >/dev/null; do sleep 0.1; done
echo "- who has which layers"
for name in prefill-rank prefill decode-rank decode; do
  printf '    %-13s %s\n' "$name" "$(grep -ho 'layers="[^"]*"' "$logs/$name" | head -1)"
done
echo "- how the model goes on with: The capital of France is"
curl -s "http://127.0.0.1:$port/v1/completions" -H 'Content-Type: application/json' \
  -d '{"prompt":"The capital of France is","max_tokens":8,"temperature":0}' |
  python3 -c 'import json, sys; print("   ", json.load(sys.stdin)["choices"][0]["text"].strip())'
[[ -z $once ]] || exit 0
echo "- clients: http://127.0.0.1:$port/v1; Ctrl-C ends it"
wait
