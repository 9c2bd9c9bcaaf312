#!/usr/bin/env bash
# Table 7 and Figure 4: CoMAS without evaluation and without scoring.
source "$(dirname "$0")/common.sh"
run comas comas
run comas_without_evaluation comas_without_evaluation
run comas_without_scoring comas_without_scoring
finish table7 figure4
