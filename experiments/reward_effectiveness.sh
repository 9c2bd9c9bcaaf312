#!/usr/bin/env bash
# Table 6: whether rewards tell right solutions from wrong ones, on the validation questions, in the course of CoMAS' training.
source "$(dirname "$0")/common.sh"
run comas comas
finish table6
