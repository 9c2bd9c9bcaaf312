#!/usr/bin/env bash
# Table 4: the main runs (those of main.sh, first seed) measured under the vanilla setup with five seeds.
source "$(dirname "$0")/common.sh"
seeds=${seeds%% *}
for method in comas srlm maporl ttrl; do run "$method" "$method"; done
if [ -z "$dry" ]; then
    for method in comas srlm maporl ttrl; do
        name=$profile-$method-seed$seeds
        marti evaluate --policies "runs/$name" --setups vanilla --seeds 1 2 3 4 5 || failed+=("$name")
    done
fi
finish table4
