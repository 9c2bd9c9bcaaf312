#!/usr/bin/env bash
# CoMAS and its positive control (solutions rewarded by the verifier) in the toy world, three seeds each.
# Finished runs are kept, interrupted ones continue. Results: runs/toy-{comas,verifier}-seed*/comparison.md, and below.
#
#   experiments/toy_control.sh [SETTINGS for every run, as in --set train.steps=40]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
./setup.sh
for method in comas verifier; do
    for seed in 1 2 3; do
        .venv/bin/python -m marti_ext train "experiments/configs/toy/$method.yaml" --resume auto \
            --set name="toy-$method-seed$seed" --set seed="$seed" "$@"
    done
done
echo
for method in comas verifier; do
    echo "$method: mean accuracy over policies, untrained, trained, difference (a line per seed)"
    grep -h '| (mean) .* all ' runs/toy-$method-seed*/comparison.md
done
