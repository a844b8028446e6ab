#!/usr/bin/env bash
# A SLURM prolog for a task (TaskProlog=/etc/slurm/oomdoc-prolog.sh): says in the job's own log, before it starts,
# whether the config that the job names fits the GPUs it was given. It never stops a job: a prolog that fails would
# drain the node, so whatever happens here the exit status is 0.
#
# A job names its config:   export TRAIN_CONFIG=train.yaml   (before sbatch, or in the batch script)
#
# What a TaskProlog prints with "print " in front goes to the standard output of the task.
set -u

config=${TRAIN_CONFIG:-}
if [[ ${SLURM_PROCID:-0} != 0 || -z $config || ! -r $config ]] || ! command -v oomdoc > /dev/null; then
  exit 0
fi

arguments=("$config")
if command -v nvidia-smi > /dev/null; then
  gpu=$(timeout 10 nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null | head -n 1)
  [[ -n $gpu ]] && arguments+=(--gpu "$gpu")
fi
gpus=${SLURM_GPUS_ON_NODE:-}
[[ $gpus =~ ^[1-9][0-9]*$ ]] && arguments+=(--gpus "$gpus")
nodes=${SLURM_JOB_NUM_NODES:-1}
[[ $nodes =~ ^[1-9][0-9]*$ ]] && arguments+=(--set "nodes=$nodes")

timeout 20 oomdoc check "${arguments[@]}" 2>&1 | sed 's/^/print oomdoc: /'
exit 0
