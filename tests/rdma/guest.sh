# What runs in the virtual machine. Each stage says "GUEST: <stage> passed" or "… failed".
cd /tmp
stages=$(cat /stages)
want() { case ",$stages," in *",$1,"*) true ;; *) false ;; esac; }
report() {  # stage, exit status
  if [ "$2" = 0 ]; then echo "GUEST: $1 passed ($(cut -d' ' -f1 /proc/uptime) s after boot)"; else echo "GUEST: $1 failed"; fi
}
ibv_devinfo | grep -E 'hca_id|state|active_mtu'

if want conformance; then
  /tests/conformance --duration=true --no-colors=true
  report conformance $?
fi

if want rails; then
  /tests/rails --duration=true --no-colors=true
  report rails $?
fi

if want groups; then  # a layer-wise pipeline and tensor ranks, whose planes offer nothing but RDMA
  /tests/groups --duration=true --no-colors=true -tc="ranks give the bits*,a layer of a tensor*"
  report groups $?
fi

# ---- store: objects between three hosts, which are network namespaces; the NICs are of all of them ----
if want store; then
  mkdir -p /var/run/netns
  for n in 1 2; do
    ip=/usr/sbin/ip
    $ip netns add h$n && $ip link add a$n type veth peer name b$n && $ip link set b$n netns h$n
    $ip addr add 10.9.$n.1/24 dev a$n
    $ip netns exec h$n $ip addr add 10.9.$n.2/24 dev b$n
    $ip link set a$n up
    $ip netns exec h$n $ip link set b$n up
    $ip netns exec h$n $ip link set lo up
    $ip netns exec h$n $ip route add default via 10.9.$n.1
  done
  HOME=/tmp PYTHONPATH=/tests/python PYTHONDONTWRITEBYTECODE=1 python3 /tests/python/store_stage.py
  report store $?
fi

# ---- figures: ours and perftest's, one after another in one boot; three rounds, since hosts are seldom quiet ----
listening() {  # perftest's port, 18515; a bound for hangs
  n=0
  until grep -q ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6 || [ $n -ge 200 ]; do
    n=$((n + 1))
    usleep 50000
  done
}
perftest() {  # program, size: MB/s (10^6 bytes), of 64 MiB or what comes nearest
  count=$((67108864 / $2))
  [ $count -ge 5 ] || count=5
  [ $count -le 10000 ] || count=10000
  "$1" -d rxe0 -x 1 -s "$2" -n $count -t 128 -Q 1 -F >/dev/null 2>&1 &
  listening
  "$1" -d rxe0 -x 1 -s "$2" -n $count -t 128 -Q 1 -F 127.0.0.1 2>/dev/null | awk -v p="$1" -v s="$2" '$1 == s { printf "FIGURE %s %d %.1f MB/s\n", p, s, $4 * 1.048576 }'
  wait
}
if want figures; then
  for round in 1 2 3; do
    for size in 4096 65536 1048576 16777216; do
      perftest ib_write_bw $size
      perftest ib_read_bw $size
      for sums in 0 1; do
        /tests/bench bandwidth rxe0 size=$size checksums=$sums
        [ $size -gt 65536 ] || /tests/bench bandwidth rxe0 size=$size slices=16 checksums=$sums
      done
      [ $size != 1048576 ] || /tests/bench bandwidth rxe0,rxe1 size=$size checksums=0
    done
    for size in 64 4096 65536 1048576; do /tests/bench bare rxe0 size=$size; done
  done
  for size in 4096 65536 1048576 16777216; do
    # The second one sleeps until an event, as we do: of two programs that poll, one waits for the other's time slice.
    for peer in ib_write_lat "ib_send_lat -e"; do
      $peer -d rxe0 -x 1 -s $size -n 20 -F >/dev/null 2>&1 &
      listening
      $peer -d rxe0 -x 1 -s $size -n 20 -F 127.0.0.1 2>/dev/null | awk -v p="$peer" -v s=$size '$1 == s { print "FIGURE", p, s, "p50", $5, "us (one way)" }'
      wait
    done
    /tests/bench latency rxe0 size=$size checksums=0
    /tests/bench latency rxe0 size=$size checksums=1
  done
  report figures $?
fi

# ---- serving: prefill in one process, decode in another, nothing but RDMA between them ----
model=$(cat /model 2>/dev/null)
# The choices of an answer, with the log-probability of every token to the last digit.
ask() {  # port, prompt
  wget -q -O - --header 'Content-Type: application/json' \
    --post-data "{\"prompt\":\"$2\",\"max_tokens\":12,\"temperature\":0,\"logprobs\":2}" \
    "http://127.0.0.1:$1/v1/completions" | sed 's/.*"choices"://'
  echo
}
healthy() {  # port: a bound for hangs
  n=0
  until wget -q -O /dev/null "http://127.0.0.1:$1/health" 2>/dev/null; do
    n=$((n + 1))
    [ $n -lt 3000 ] || return 1
    usleep 200000
  done
}
# A second turn, whose prompt contains the first answer (in letters, so that text and tokens agree). Whoever computed the
# first turn's prompt never had the answer's blocks. With a salt of its own nothing of it is cached.
first_turn() {  # port, seed
  wget -q -O - --header 'Content-Type: application/json' --post-data \
    "{\"prompt\":\"A tale of two rails that met in a machine made of code:\",\"max_tokens\":80,\"temperature\":1,\"seed\":$2,\"guided_regex\":\"[a-z ]{80}\"}" \
    "http://127.0.0.1:$1/v1/completions" | sed 's/.*"text": *"\([a-z ]*\)".*/\1/'
}
second_turn() {  # port, first answer, salt
  wget -q -O - --header 'Content-Type: application/json' --post-data \
    "{\"prompt\":\"A tale of two rails that met in a machine made of code:$2 and\",\"max_tokens\":12,\"temperature\":0,\"logprobs\":2,\"cache_salt\":\"$3\"}" \
    "http://127.0.0.1:$1/v1/completions" | sed 's/.*"choices"://'
  echo
}
prompts() {
  cat <<'PROMPTS'
The capital of France is
Once upon a time there was a small boat that wanted to see the whole wide ocean and all of its islands, so it
One, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve, thirteen, fourteen, fifteen, sixteen,
PROMPTS
}
# Without what it cost: a request that lost its link on an emulated machine is answered the same, with more found in a cache.
answers() { prompts | while read -r p; do ask "$1" "$p" </dev/null | sed 's/,* *"usage".*//'; done; }
serving() {
  tales="5 6"
  # Short passes: measuring longer ones at start takes an emulated processor minutes. And no request is too late here.
  common="--model $model --threads 1 --cache-dram 64MiB --context-length 512 --admission none"
  common="$common --chunk-tokens 32 --max-batch-tokens 32 --block-tokens 16"
  /tests/mooncaf $common --max-batch 2 --http 127.0.0.1:8001 --listen 127.0.0.1:7401 >/tmp/one.log 2>&1 &
  one=$!
  healthy 8001 || { cat /tmp/one.log; return 1; }
  answers 8001 >/tmp/one.txt
  for seed in $tales; do
    first_turn 8001 $seed >/tmp/tale-$seed
    second_turn 8001 "$(cat /tmp/tale-$seed)" cold | sed 's/,* *"usage".*//' >/tmp/one-$seed.cut
  done
  kill $one
  wait $one
  /tests/mooncaf $common --role conductor,prefill,cache,gateway --prefetch-threshold 0 --prefetch wait_complete --no-tcp --no-shm --http 127.0.0.1:8000 --journal /tmp/decisions \
    --listen 127.0.0.1:7400 >/tmp/prefill.log 2>&1 &
  prefill=$!
  /tests/mooncaf $common --max-batch 2 --role decode,cache --join 127.0.0.1:7400 --no-tcp --no-shm >/tmp/decode.log 2>&1 &
  decode=$!
  healthy 8000 && answers 8000 >/tmp/two.txt
  # The prompt and its turn of 80 letters: all but the last blocks come out of a cache, and those of the answer by READ,
  # where that promises to be faster than computing. On an emulated machine it does not always.
  fetched=
  for seed in $tales; do
    [ "$(first_turn 8000 $seed)" = "$(cat /tmp/tale-$seed)" ] && second_turn 8000 "$(cat /tmp/tale-$seed)" "" >/tmp/two-tale.txt
    sed 's/,* *"usage".*//' /tmp/two-tale.txt >/tmp/two-$seed.cut
    echo "tale $seed:        $(cat /tmp/tale-$seed); cached: $(sed 's/.*"cached_tokens": *\([0-9]*\).*/\1/' /tmp/two-tale.txt)"
    grep -q token_logprobs /tmp/one-$seed.cut && cmp /tmp/one-$seed.cut /tmp/two-$seed.cut || { cat /tmp/*-$seed.cut; return 1; }
    grep -q '"cached_tokens": *1[12][0-9]' /tmp/two-tale.txt && fetched=yes && break
  done
  n=0  # reports come twice a second
  until wget -q -O - http://127.0.0.1:8000/cluster >/tmp/cluster.json && grep -q '"hits_remote": *[1-9]' /tmp/cluster.json || [ $n -ge 25 ]; do
    n=$((n + 1))
    usleep 200000
  done
  kill $prefill $decode
  wait
  echo "one process:   $(md5sum </tmp/one.txt) $(tail -c 300 /tmp/one.txt)"
  echo "over RDMA:     $(md5sum </tmp/two.txt) $(tail -c 300 /tmp/two.txt)"
  echo "paths:         $(sed 's/.*\("paths":\[[^]]*\]\).*/\1/' /tmp/cluster.json)"
  echo "rails:         $(sed 's/.*\("rails":\[[^]]*\]\).*/\1/' /tmp/cluster.json)"
  # What the conductor decided to fetch came; where it decided for computing, its journal says why.
  if grep -q '"fetches":[1-9]' /tmp/cluster.json; then
    [ "$fetched" ] && grep -q '"hits_remote": *[1-9]' /tmp/cluster.json || { cat /tmp/two-tale.txt /tmp/cluster.json; return 1; }
  else
    echo "no second turn's prefix was fetched:"
    /tests/mooncaf replay /tmp/decisions --explain '#5'
  fi
  [ "$(grep -c token_logprobs /tmp/one.txt)" = 3 ] && cmp /tmp/one.txt /tmp/two.txt && grep -q '"path":"rdma"' /tmp/cluster.json &&
    ! grep -q '"path":"\(tcp\|shm\)"' /tmp/cluster.json && return 0
  tail -20 /tmp/one.log /tmp/prefill.log /tmp/decode.log
  return 1
}
# ---- device: a GPU (tests/support/simt/driver) computes prompts, and NICs read their KV in its own memory ----
short_answers() {  # port
  for p in "A boat on the sea" "Two rails met in a machine and never parted, so"; do
    ask $1 "$p" | sed 's/.*"text": *"\([^"]*\)".*/\1/'
  done
}
device() {
  common="--model dummy:layers=2,dim=64,heads=2,kv_heads=1,head_dim=32,ffn=64,vocab=300,type=f32,ctx=256 --threads 1"
  common="$common --cache-dram 16MiB --context-length 128 --admission none --chunk-tokens 32 --max-batch-tokens 32 --block-tokens 16"
  /tests/mooncaf $common --max-batch 2 --http 127.0.0.1:8001 --listen 127.0.0.1:7401 >/tmp/host.log 2>&1 &
  host=$!
  healthy 8001 && short_answers 8001 >/tmp/host.txt
  kill $host
  wait $host
  export MOONCAF_FAKE_CUDA=nic
  LD_LIBRARY_PATH=/tests/driver /tests/mooncaf $common --device cuda --device-kv 1MiB --role conductor,prefill,gateway --no-tcp --no-shm \
    --http 127.0.0.1:8000 --listen 127.0.0.1:7400 >/tmp/gpu.log 2>&1 &
  gpu=$!
  /tests/mooncaf $common --max-batch 2 --role decode --join 127.0.0.1:7400 --no-tcp --no-shm >/tmp/decode.log 2>&1 &
  decode=$!
  healthy 8000 && short_answers 8000 >/tmp/gpu.txt
  n=0  # reports come twice a second
  until wget -q -O - http://127.0.0.1:8000/cluster >/tmp/cluster.json && grep -q '"sent_bytes":[1-9]' /tmp/cluster.json || [ $n -ge 25 ]; do
    n=$((n + 1))
    usleep 200000
  done
  kill $gpu $decode
  wait
  echo "devices:       $(sed 's/.*\("devices":\[[^]]*\]\).*/\1/' /tmp/cluster.json)"
  [ "$(wc -l </tmp/host.txt)" = 2 ] && cmp /tmp/host.txt /tmp/gpu.txt && grep -q '"sent_bytes":[1-9]' /tmp/cluster.json &&
    grep -q "KV leaves from the device's memory" /tmp/gpu.log && return 0
  tail -20 /tmp/host.log /tmp/gpu.log /tmp/decode.log
  return 1
}
# Objects and blocks cannot share memory that a NIC keeps: who asks for it is told so, with the NIC's name.
shared_memory() {
  /tests/mooncaf --model "$model" --threads 1 --cache-dram 64MiB --store-dram 8MiB --store-dram-shared 8MiB \
    --context-length 512 >/tmp/shared.log 2>&1
  [ $? = 2 ] && grep -q 'store-dram-shared: a NIC (rxe.* give --no-rdma' /tmp/shared.log && return 0
  tail -20 /tmp/shared.log
  return 1
}
if want device; then
  device
  report device $?
fi

if want serving; then
  /tests/mooncaf topology
  printf '[rdma]\ntopology = "0=rxe1"\n' >/tmp/topology.toml
  /tests/mooncaf topology --config /tmp/topology.toml | grep -q 'NUMA node 0 is served by rxe1 (set by option)' &&
    /tests/mooncaf topology | grep -q '^device memory: ' && shared_memory && serving
  report serving $?
fi
