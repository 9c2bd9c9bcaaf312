#!/usr/bin/env bash
# The main job: trains CoMAS agents, measures them untrained and trained, draws curves, writes the comparison table.
#
#   ./run_all.sh                    the toy world on a CPU (default: --profile toy)
#   ./run_all.sh --profile paper    the paper's setting, on GPUs
#   ./run_all.sh ... ARGS           further arguments go to `train`, as in --set train.steps=40 or --dry-run
#   ./run_all.sh --experiment NAME  a table, figure or ablation of the paper instead (experiments/NAME.sh), or all of them
#
# A run that was interrupted continues from its last complete step; a finished one is reported again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
profile=toy
experiment=
arguments=()
while [ $# -gt 0 ]; do
    case $1 in
        --profile) profile=${2:?"--profile needs toy or paper"}; shift ;;
        --profile=*) profile=${1#*=} ;;
        --experiment) experiment=${2:?"--experiment needs a name or all"}; shift ;;
        --experiment=*) experiment=${1#*=} ;;
        -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
        *) arguments+=("$1") ;;
    esac
    shift
done
if [ -n "$experiment" ]; then
    all="main reward_effectiveness ablation_reward ablation_agents ablation_diversity cost size significance"
    case " all $all " in
        *" $experiment "*) ;;
        *) echo "error: no experiment '$experiment'; there is: all $all" >&2; exit 2 ;;
    esac
    [ "$experiment" = all ] || all=$experiment
    failed=0
    for script in $all; do "experiments/$script.sh" --profile "$profile" "${arguments[@]}" || failed=1; done
    exit $failed
fi
config=experiments/configs/$profile/comas.yaml
[ -f "$config" ] || { echo "error: no profile '$profile'; there is: $(ls experiments/configs | tr '\n' ' ')" >&2; exit 1; }
./setup.sh
[ "$profile" != toy ] || export DS_ACCELERATOR=cpu # the toy world is made for a CPU, also where there are GPUs
exec .venv/bin/python -m marti_ext train "$config" --resume auto "${arguments[@]}"
