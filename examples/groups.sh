#!/usr/bin/env bash
# A cluster on this machine whose instances are groups of processes: for prefill two with half of the model's layers each, for
# decode three with a third of every layer, and a gateway. Answers are, to the bit, those of one process with the whole model.
#
#   examples/groups.sh                      until Ctrl-C; clients talk to port 8000
#   examples/groups.sh --once               shows who has which layers, asks for one answer, and ends
#
# MOONCAF_MODEL names another model, MOONCAF_PORT another port for clients; MOONCAF_CONTROL_PORT and the three behind it
# (default 7400) are the cluster's own. Needs a build (examples/quickstart.sh makes one). Sections are hosts: here both are
# this machine.
set -euo pipefail
cd "$(dirname "$0")/.."

once=
case "${1:-}" in
  --once) once=yes ;;
  '') ;;
  -h | --help) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 0 ;;
  *) echo "groups.sh: unknown argument '$1' (--help lists the known ones)" >&2; exit 2 ;;
esac
mooncaf=$(realpath "${MOONCAF_BINARY:-build/actors/mooncaf}")
[[ -x $mooncaf ]] || { echo "groups.sh: no $mooncaf; run examples/quickstart.sh first" >&2; exit 2; }
model=$(realpath "${MOONCAF_MODEL:-$(examples/fetch_model.sh)}")
port=${MOONCAF_PORT:-8000}
folder=$(mktemp -d)
end() {
  "$mooncaf" stop "$folder/groups.toml" || true
  rm -rf "$folder"
}
trap end EXIT

cat >"$folder/groups.toml" <<FILE
[launch]
port = ${MOONCAF_CONTROL_PORT:-7400}
[model]
path = "$model"
context_length = 4096
threads = 1
[gateway]
http = "127.0.0.1:$port"
[metrics]
listen = "127.0.0.1:0"
[one]
address = "127.0.0.1"
conductor = 1
gateway = 1
prefill = 1
prefill_ranks = "one"
[other]
address = "127.0.0.1"
decode = 1
decode_ranks = "other,other"
tensor = 3
FILE
"$mooncaf" up "$folder/groups.toml"
echo "- who has which layers"
curl -s "http://127.0.0.1:$port/cluster" | python3 -c '
import json, sys
for r in json.load(sys.stdin)["ranks"]:
    print("    %-22s layers %s of the group %s" % (r["process"], r["layers"], r["node"]))'
echo "- how the model goes on with: The capital of France is"
curl -s "http://127.0.0.1:$port/v1/completions" -H 'Content-Type: application/json' \
  -d '{"prompt":"The capital of France is","max_tokens":8,"temperature":0}' |
  python3 -c 'import json, sys; print("   ", json.load(sys.stdin)["choices"][0]["text"].strip())'
[[ -z $once ]] || exit 0
echo "- clients: http://127.0.0.1:$port/v1; Ctrl-C ends it"
sleep infinity
