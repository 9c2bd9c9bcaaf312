#!/usr/bin/env bash
# The main job: trains CoMAS agents, measures them untrained and trained, draws curves, writes the comparison table.
#
#   ./run_all.sh                    the toy world on a CPU (default: --profile toy)
#   ./run_all.sh --profile paper    the paper's setting, on GPUs
#   ./run_all.sh ... ARGS           further arguments go to `train`, as in --set train.steps=40 or --dry-run
#
# A run that was interrupted continues from its last complete step; a finished one is reported again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
profile=toy
case ${1:-} in
    --profile) profile=${2:?"--profile needs toy or paper"}; shift 2 ;;
    --profile=*) profile=${1#*=}; shift ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
config=experiments/configs/$profile/comas.yaml
[ -f "$config" ] || { echo "error: no profile '$profile'; there is: $(ls experiments/configs | tr '\n' ' ')" >&2; exit 1; }
./setup.sh
exec .venv/bin/python -m marti_ext train "$config" --resume auto "$@"
