#!/usr/bin/env bash
# Table 8 and Figure 5, left: CoMAS with 1, 2 and 4 agents of the same base; m = 2 l. The paper's main run is the one with 4.
source "$(dirname "$0")/common.sh"
run agents1 homogeneous agents.0.count=1 method.rounds=2
run agents2 homogeneous agents.0.count=2 method.rounds=4
[ "$profile" = paper ] && run comas comas || run agents4 homogeneous agents.0.count=4 method.rounds=8
finish table8 figure5
