#!/usr/bin/env bash
# Installs, builds, fetches the small model, serves it with all roles in one process, and asks it two questions.
#
#   examples/quickstart.sh           leaves the server running and prints its URLs
#   examples/quickstart.sh --once    stops it again (for CI)
#
# Works from a bare Debian 12 with git, from a clone with no build folder, and twice in a row.
set -euo pipefail
cd "$(dirname "$0")/.."

once=0
for argument in "$@"; do
  case "$argument" in
    --once) once=1 ;;
    -h | --help)
      sed -n '2,8s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *)
      echo "quickstart: unknown argument '$argument' (known: --once, --help)" >&2
      exit 2
      ;;
  esac
done

say() { printf '\n== %s\n' "$*"; }

say "1/5 packages"
examples/install_packages.sh
say "2/5 model"
model=$(examples/fetch_model.sh)
echo "$model"
say "3/5 build (some minutes the first time)"
cmake -G Ninja -B build -S . -DCMAKE_BUILD_TYPE=RelWithDebInfo -DMOONCAF_UNITY=ON >build.log 2>&1 || { cat build.log >&2; exit 1; }
rm -f build.log
ninja -C build mooncaf

say "4/5 serve: conductor, 2 prefill, 1 decode, 1 cache shard with an SSD tier, messenger, gateway"
state=${MOONCAF_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/mooncaf}
mkdir -p "$state"
http=${MOONCAF_HTTP:-127.0.0.1:8000}
log="$state/quickstart.log"
if curl -fs "http://$http/health" >/dev/null 2>&1; then
  echo "a server answers at http://$http already; using it"
  server=""
else
  build/actors/mooncaf --role all --model "$model" --http "$http" --ssd-path "$state/ssd" >"$log" 2>&1 &
  server=$!
  for ((i = 0; i < 600; ++i)); do
    curl -fs "http://$http/health" >/dev/null 2>&1 && break
    kill -0 "$server" 2>/dev/null || { echo "the server ended early; its log:" >&2; cat "$log" >&2; exit 1; }
    sleep 0.1
  done
  curl -fs "http://$http/health" >/dev/null || { echo "not healthy after 60 s; its log:" >&2; cat "$log" >&2; exit 1; }
fi

say "5/5 a chat, streamed, and its second turn"
python3 examples/chat_twice.py "http://$http"

if [[ $once == 1 ]]; then
  if [[ -n $server ]]; then
    kill "$server"
    wait "$server" || true
  fi
  exit 0
fi
cat <<END

The server goes on${server:+ (process $server; stop it with: kill $server)}.
  API       http://$http/v1        any OpenAI client, any key
  live page http://$http/
  metrics   http://$http/metrics
  cluster   http://$http/cluster
  log       $log
END
