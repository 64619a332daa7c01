#!/usr/bin/env bash
# Fuzzes every Fuzz function of the project, one after the other.
#
#   scripts/fuzz.sh [DURATION]     for each function, as go test -fuzztime takes it; default 60s
set -euo pipefail
# shellcheck source=scripts/ci-lib.sh
. "$(dirname "$0")/ci-lib.sh"

duration=${1:-60s}
found=0
# Only packages whose test files mention one are compiled; go test itself says what they hold.
dirs=$(go_files | xargs grep -l '^func Fuzz' | xargs -r -n1 dirname | sort -u)
for dir in $dirs; do
  cd "$dir" # also selects the module
  names=$(go test -list '^Fuzz' .)
  for name in $(grep '^Fuzz' <<<"$names"); do
    found=$((found + 1))
    step "fuzz ${dir#"$ROOT"/} $name for $duration" go test -run '^$' -fuzz "^$name\$" -fuzztime "$duration" -fuzzminimizetime 10x .
  done
done
if [ "$found" -eq 0 ]; then
  echo "no Fuzz function found: the search is broken" >&2
  exit 1
fi
echo "fuzzed $found functions"
