#!/usr/bin/env bash
# Prints what a run of the checks was made with, and sees to it that there is room on the disk: a full one fails tests at random.
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

# free_mib DIR is how much room there is where DIR is.
free_mib() { df -Pk "$1" | awk 'NR == 2 { print int($4 / 1024) }'; }

# A run from nothing writes 3.4 GiB, nearly all of it to Go's build cache, which grows from run to run and can be made again.
room=3584
cache=$(go env GOCACHE)
mkdir -p "$cache"
if [ "$(free_mib "$cache")" -lt $room ]; then
  echo "$(free_mib "$cache") MiB are free: go clean -cache"
  go clean -cache
fi
if [ "$(free_mib "$cache")" -lt $room ]; then
  echo "no room: $(free_mib "$cache") MiB are free where $cache is, and the checks need $room: free some, or set GOCACHE to a folder with room" >&2
  exit 1
fi
echo "$(free_mib "$cache") MiB free"
