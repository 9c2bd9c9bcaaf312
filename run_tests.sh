#!/usr/bin/env bash
# Runs the tests: format and lint, the fast layer, then the real layer (Ray, DeepSpeed, engines).
#
#   ./run_tests.sh          everything
#   ./run_tests.sh --fast   no Ray: under a minute
#   ./run_tests.sh ARGS     further arguments go to pytest
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
./setup.sh
.venv/bin/ruff format --check .
.venv/bin/ruff check .
marker=()
if [ "${1:-}" = --fast ]; then
    shift
    marker=(-m "not real")
fi
exec .venv/bin/python -m pytest "${marker[@]}" "$@"
