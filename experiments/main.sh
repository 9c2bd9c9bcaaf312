#!/usr/bin/env bash
# Table 1 and Figure 3: CoMAS and its baselines on all benchmarks under all setups; the verifier's control beside them.
source "$(dirname "$0")/common.sh"
run comas comas
run srlm srlm
run maporl maporl
run ttrl ttrl
run verifier verifier
finish table1 figure3
