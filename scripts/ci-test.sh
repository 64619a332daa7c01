#!/usr/bin/env bash
# Runs every kind of test: unit and property tests, the same under the race detector, the docs check, the stories against
# the real Envoy, the benchmarks' own tests.
#
#   scripts/ci-test.sh [short|long]     long: ENVOY_RLS_LONG=1, the long forms of tests that have one
set -euo pipefail
# shellcheck source=scripts/ci-lib.sh
. "$(dirname "$0")/ci-lib.sh"

form=${1:-short}
timeout=10m
if [ "$form" = long ]; then
  export ENVOY_RLS_LONG=1
  timeout=30m
fi

# raced lists the packages that the race detector is for: all but the docs check, which drives other programs.
raced() { go list ./... | grep -v '/internal/doctest$'; }

# in_module DIR COMMAND... runs a command there.
in_module() {
  local dir=$1
  shift
  (cd "$ROOT/$dir" && "$@")
}

cd "$ROOT"
step "envoy and the header checkers" "$ROOT/scripts/ci-deps.sh"
step "build" go build ./...
step "unit and property tests, docs check ($form)" go test -timeout "$timeout" ./...
# shellcheck disable=SC2046 # package paths hold no spaces
step "race detector ($form)" go test -race -timeout "$timeout" $(raced)
for module in bench e2e; do
  if [ -f "$ROOT/$module/go.mod" ]; then
    step "$module ($form)" in_module "$module" go test -count=1 -timeout "$timeout" ./...
  fi
done
