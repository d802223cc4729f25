#!/bin/sh
# A scale-command for workers that are jobs of Slurm: a batch script for each part, prefill.sbatch and so on, in FOLDER.
#
#   mooncaf --role conductor,gateway … --scale-prefill 2-8 --scale-command "examples/scale/slurm.sh FOLDER"
#
# The conductor adds the counts that there should be: prefill=3 decode=2. Status 0 ends the call; after any other it is
# repeated. Jobs that have not begun are taken back before jobs that serve, and those are told to drain.
set -eu
folder=$1
shift
for count in "$@"; do
  part=${count%%=*} wanted=${count#*=}
  there=$(squeue --me --noheader --states=PENDING,RUNNING --name="mooncaf-$part" --format=%i | wc -l)
  while [ "$there" -lt "$wanted" ]; do
    sbatch --job-name="mooncaf-$part" "$folder/$part.sbatch"
    there=$((there + 1))
  done
  [ "$there" -gt "$wanted" ] || continue
  surplus=$((there - wanted))
  { squeue --me --noheader --states=PENDING --name="mooncaf-$part" --format=%i
    squeue --me --noheader --states=RUNNING --name="mooncaf-$part" --sort=-S --format=%i; } | head -n "$surplus" |
    xargs scancel --batch --signal=TERM
done
