#!/usr/bin/env bash
# Table 5: CoMAS with another base: the 7B model, or in the toy world agents that all have the llama base.
source "$(dirname "$0")/common.sh"
run size size
finish table5
