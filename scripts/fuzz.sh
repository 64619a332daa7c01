#!/usr/bin/env bash
# Fuzzes every Fuzz function of the root module, one after the other.
#
#   scripts/fuzz.sh [DURATION]     for each function, as go test -fuzztime takes it; default 60s
set -euo pipefail
# shellcheck source=scripts/ci-lib.sh
. "$(dirname "$0")/ci-lib.sh"

duration=${1:-60s}
cd "$ROOT"
found=0
# Only packages whose test files mention one are compiled; go test itself says what they hold.
dirs=$(grep -rl --include='*_test.go' '^func Fuzz' pkg internal cmd 2>/dev/null | xargs -r -n1 dirname | sort -u)
for dir in $dirs; do
  for name in $(go test -list '^Fuzz' "./$dir" | grep '^Fuzz'); do
    found=$((found + 1))
    step "fuzz $dir $name for $duration" go test -run '^$' -fuzz "^$name\$" -fuzztime "$duration" "./$dir"
  done
done
if [ "$found" -eq 0 ]; then
  echo "no Fuzz function found: the search is broken" >&2
  exit 1
fi
echo "fuzzed $found functions"
