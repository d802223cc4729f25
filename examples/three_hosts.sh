#!/usr/bin/env bash
# Three hosts on one machine: network namespaces on a bridge, each with one mooncaf process, KV over TCP between them.
#
#   examples/quickstart.sh --once && sudo examples/three_hosts.sh
#
# With --store the three carry an object store in place of a model: a conductor, and two caches with 16 MiB of memory and
# an SSD tier each. It ends with
#
#   60 of 60 objects of 1 MiB are read as they were written
#   killed host 3 and started it again
#   60 of 60 objects of 1 MiB are read as they were written
#
# On real hosts the three commands below are the same but for `ip netns exec` and the addresses. Ends what it started.
set -euo pipefail
cd "$(dirname "$0")/.."
((EUID == 0)) || { echo "three_hosts: making network namespaces needs root; try sudo" >&2; exit 1; }
mooncaf=${MOONCAF_BINARY:-build/actors/mooncaf}
[[ -x $mooncaf ]] || { echo "three_hosts: build first: examples/quickstart.sh --once" >&2; exit 1; }
serves=()
[[ ${1:-} == --store ]] || serves=(--model "${MOONCAF_MODEL:-$(examples/fetch_model.sh)}")

name=mooncaf-$$
work=$(mktemp -d)
pids=()
cleanup() {
  ((${#pids[@]} == 0)) || kill "${pids[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  for host in switch 1 2 3; do ip netns delete "$name-$host" 2>/dev/null || true; done
  rm -rf "$work"
}
trap cleanup EXIT

# ---- the network ----
ip netns add "$name-switch"
ip -n "$name-switch" link add bridge type bridge
ip -n "$name-switch" link set bridge up
for host in 1 2 3; do
  ip netns add "$name-$host"
  ip -n "$name-$host" link set lo up
  ip -n "$name-switch" link add "port$host" type veth peer name eth netns "$name-$host"
  ip -n "$name-switch" link set "port$host" master bridge up
  ip -n "$name-$host" addr add "10.78.0.$host/24" dev eth
  ip -n "$name-$host" link set eth up
done

# ---- the cluster ----
# Beyond loopback every host needs the same secret: links are authenticated and encrypted with it.
(umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$work/secret")
start() {  # HOST ROLE [OPTION...]
  local host=$1 role=$2
  shift 2
  echo "+ mooncaf --role $role --listen 10.78.0.$host:7400 --data-listen 10.78.0.$host:0 $*"
  ip netns exec "$name-$host" "$mooncaf" --role "$role" "${serves[@]}" --listen "10.78.0.$host:7400" \
    --data-listen "10.78.0.$host:0" --metrics-listen 127.0.0.1:0 --cluster-secret-file "$work/secret" "$@" \
    >>"$work/$host.log" 2>&1 &
  pids[host]=$!
}

# ---- a store ----
store() {  # as a user of host 1
  ip netns exec "$name-1" "$mooncaf" store "$@" --directory 10.78.0.1:7460 --cluster-secret-file "$work/secret"
}
await() {  # COUNT PATTERN COMMAND: so many lines that the command prints have the pattern
  for ((i = 0; i < 600; ++i)); do
    (($(store "$3" --json 2>/dev/null | grep -cE "$2") != $1)) || return 0
    sleep 0.1
  done
  cat "$work"/*.log >&2
  return 1
}
read_all() {
  local right=0
  for value in "$work"/value-*; do
    store get "${value##*/}" | cmp -s - "$value" && right=$((right + 1))
  done
  echo "$right of 60 objects of 1 MiB are read as they were written"
}
cache() {
  start "$1" cache --join 10.78.0.1:7400 --store-dram 16MiB --store-ssd-path "$work/ssd$1" --store-ssd-size 256MiB \
    --store-write-policy write_through
}
if [[ ${1:-} == --store ]]; then
  start 1 conductor --store-listen 10.78.0.1:7460
  cache 2
  cache 3
  await 4 medium segments
  head -c 60M /dev/urandom | split -b 1M -a 2 - "$work/value-"
  written=0
  for value in "$work"/value-*; do
    store put "${value##*/}" <"$value"
    written=$((written + 1))  # what comes faster than it can be written stays in memory until it has to leave
    await 1 "\"ssd_objects\": ?$written," stat
  done
  read_all
  store segments
  kill -9 "${pids[3]}"
  await 2 medium segments
  cache 3
  await 4 medium segments
  echo "killed host 3 and started it again"
  read_all
  exit
fi

# ---- a model ----
start 1 conductor,gateway --http 10.78.0.1:8000
start 2 prefill --join 10.78.0.1:7400
start 3 decode --join 10.78.0.1:7400

echo "waiting until a request could be served"
for ((i = 0; i < 600; ++i)); do
  ip netns exec "$name-1" curl -fs http://10.78.0.1:8000/health >/dev/null && break
  sleep 0.1
done
ip netns exec "$name-1" curl -fs http://10.78.0.1:8000/health >/dev/null || { cat "$work"/*.log >&2; exit 1; }
ip netns exec "$name-1" python3 examples/chat_twice.py http://10.78.0.1:8000
