# Sourced by every experiment script: its options, `run`, which trains what is not trained yet, and `finish`.
#
#   --profile toy|paper   the toy world on a CPU (default), or the paper's setting on GPUs
#   --seeds "1 2 3"       default: 1 2 3 for toy, 42 for paper
#   --dry-run             only list what would run, with counts, GPU hours and disk
#   KEY=VALUE ...         settings for every run, as in train.steps=40
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
profile=toy seeds='' dry='' settings=() listed=() failed=()
while [ $# -gt 0 ]; do
    case $1 in
        --profile) profile=${2:-}; shift ;;
        --profile=*) profile=${1#*=} ;;
        --seeds) seeds=${2:-}; shift ;;
        --seeds=*) seeds=${1#*=} ;;
        --dry-run) dry=yes ;;
        -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; sed -n '3,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
        *=*) settings+=("$1") ;;
        *) echo "error: unknown option '$1', see --help" >&2; exit 2 ;;
    esac
    shift
done
case $profile in
    toy) seeds=${seeds:-1 2 3}; export DS_ACCELERATOR=cpu ;;
    paper) seeds=${seeds:-42} ;;
    *) echo "error: no profile '$profile'; there is: toy paper" >&2; exit 2 ;;
esac
marti() { .venv/bin/python -m marti_ext "$@"; }
./setup.sh

# run VARIANT CONFIG [KEY=VALUE ...]: a run for each seed, runs/PROFILE-VARIANT-seedN. A finished one is skipped, an
# interrupted one goes on, a failed one is named at the end and does not keep the others from running.
run() {
    local variant=$1 config=experiments/configs/$profile/$2.yaml seed word arguments
    shift 2
    for seed in $seeds; do
        arguments=()
        for word in "name=$profile-$variant-seed$seed" "seed=$seed" "$@" "${settings[@]}"; do arguments+=(--set "$word"); done
        if [ -n "$dry" ]; then
            listed+=("$config ${arguments[*]}")
        elif ! marti train "$config" --resume auto "${arguments[@]}"; then
            failed+=("$profile-$variant-seed$seed")
        fi
    done
}

# finish WHAT ...: ends with these tables and figures of the paper, measured beside published.
finish() {
    if [ -n "$dry" ]; then
        printf '%s\n' "${listed[@]}" | marti plan
        return
    fi
    marti compare "$@" --profile "$profile"
    [ ${#failed[@]} -eq 0 ] || { echo "error: failed: ${failed[*]}; the same command tries them again" >&2; exit 1; }
}
