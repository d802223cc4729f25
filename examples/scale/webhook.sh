#!/bin/sh
# A scale-command that tells a service of yours, as JSON: {"prefill": 3, "decode": 2}.
#
#   mooncaf … --scale-prefill 2-8 --scale-decode 1-4 --scale-command "examples/scale/webhook.sh https://HOST/scale"
#
# The counts are those that there should be. An answer other than 2xx is a failure, after which the call is repeated.
set -eu
url=$1
shift
body=$(printf '%s\n' "$@" | sed 's/\(.*\)=\(.*\)/"\1": \2/' | paste -sd, -)
exec curl --fail --silent --show-error --max-time 30 --header 'Content-Type: application/json' --data "{$body}" "$url"
