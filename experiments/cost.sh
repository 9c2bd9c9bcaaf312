#!/usr/bin/env bash
# Table 3: what CoMAS costs with 1, 2 and 4 agents: samples, tokens, memory, time. The runs are those of ablation_agents.sh.
source "$(dirname "$0")/common.sh"
run agents1 homogeneous agents.0.count=1 method.rounds=2
run agents2 homogeneous agents.0.count=2 method.rounds=4
[ "$profile" = paper ] && run comas comas || run agents4 homogeneous agents.0.count=4 method.rounds=8
finish table3
