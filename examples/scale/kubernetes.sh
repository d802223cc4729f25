#!/bin/sh
# A scale-command for workers that are StatefulSets of Kubernetes, named like the parts they are:
#
#   mooncaf --role conductor,gateway … --scale-prefill 2-8 --scale-decode 1-4 \
#     --scale-command "examples/scale/kubernetes.sh mooncaf"
#
# The conductor adds the counts that there should be: prefill=3 decode=2. Status 0 ends the call; after any other it is
# repeated, with the counts of that time. A pod that is to go gets SIGTERM and drains, for as long as its
# terminationGracePeriodSeconds lets it; give it more than --drain-timeout.
set -eu
namespace=$1
shift
for count in "$@"; do
  kubectl --namespace "$namespace" scale "statefulset/mooncaf-${count%%=*}" --replicas="${count#*=}"
done
