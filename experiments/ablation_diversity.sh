#!/usr/bin/env bash
# Table 9 and Figure 5, right: two agents with the same base, and with different ones, as the toy world's main run has them.
source "$(dirname "$0")/common.sh"
run agents2 homogeneous agents.0.count=2 method.rounds=4
[ "$profile" = toy ] && run comas comas || run heterogeneous heterogeneous
finish table9 figure5
