#!/usr/bin/env bash
# Runs every kind of test: unit and property tests, the same under the race detector, the docs check, the stories against
# the real Envoy, the benchmarks' own tests.
#
#   scripts/ci-test.sh [short|long]     long: ENVOY_RLS_LONG=1, the long forms of tests that have one
set -euo pipefail
# shellcheck source=scripts/ci-lib.sh
. "$(dirname "$0")/ci-lib.sh"

form=${1:-short}
if [ "$form" = long ]; then
  export ENVOY_RLS_LONG=1
fi

# packages lists all of the root module but the docs check. That one drives programs that Go's test cache does not know of, so that it
# has to run anew each time, and it has nothing for the race detector.
packages() { go list ./... | grep -v '/internal/doctest$'; }

results=$(mktemp)
trap 'rm -f "$results"' EXIT

# test_in DIR ARGUMENT... runs go test in a module and keeps its result lines for the end. Go's own timeout of 10 min is too short for some packages on
# a slow machine.
test_in() {
  local dir=$1
  shift
  (cd "$ROOT/$dir" && go test -timeout 30m "$@") 2>&1 | tee -a "$results"
}

# What a test cannot check for want of Envoy, Redis or PostgreSQL is a failure here.
export ENVOY_RLS_NEED_ENVOY=1 ENVOY_RLS_NEED_REDIS=1 ENVOY_RLS_NEED_POSTGRES=1 ENVOY_RLS_NEED_PROMTOOL=1

cd "$ROOT"
step "redis, postgres, envoy and the header checkers" "$ROOT/scripts/ci-deps.sh"
step "build" go build ./...
# shellcheck disable=SC2046 # package paths hold no spaces
step "unit and property tests ($form)" test_in . $(packages)
# shellcheck disable=SC2046
step "race detector ($form)" test_in . -race $(packages)
step "documents" test_in . -count=1 ./internal/doctest
for module in bench deploy/monitoring examples/* e2e; do
  if [ -f "$ROOT/$module/go.mod" ]; then
    # One package at a time: e2e/faults holds the service to time.
    step "$module ($form)" test_in "$module" -count=1 -p 1 ./...
  fi
done

printf '\n==> all test results\n'
grep -E '^ok ' "$results"
