#!/usr/bin/env bash
# Prints what a run of the checks was made with.
set -euo pipefail
# shellcheck source=scripts/ci-lib.sh
. "$(dirname "$0")/ci-lib.sh"

need go "Go 1.26 or newer: https://go.dev/dl"
need python3 "Python 3, for the real Envoy (PyPI) and the header checkers"
need gcc "a C compiler, for the race detector"
go version
python3 --version
if command -v node >/dev/null 2>&1; then echo "node $(node --version), npm $(npm --version)"; else echo "node: none"; fi
gcc --version | head -n 1
echo "$(nproc) cores, $(uname -srm)"
