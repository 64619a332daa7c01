#!/usr/bin/env bash
# Lints every module: formatting, go vet, golangci-lint, tidy go.mod files, known vulnerabilities, shell syntax.
set -euo pipefail
# shellcheck source=scripts/ci-lib.sh
. "$(dirname "$0")/ci-lib.sh"

check_format() {
  local bad
  bad=$(go_files | xargs gofumpt -l) || return
  if [ -n "$bad" ]; then
    printf 'not formatted (run: make fmt):\n%s\n' "$bad" >&2
    return 1
  fi
}

# check_shell parses every shell script, so that one that CI never calls is at least well formed.
check_shell() {
  local file rc=0
  for file in "$ROOT"/scripts/*.sh "$ROOT/.ci/run"; do bash -n "$file" || rc=1; done
  return $rc
}

each_module() {
  local dir
  for dir in $(modules); do
    echo "-- ${dir#"$ROOT"}/"
    (cd "$dir" && "$@") || return 1
  done
}

# vulnerabilities asks the Go vulnerability database. Only when its host cannot be reached is that not a failure.
vulnerabilities() {
  local out rc=0
  out=$(govulncheck ./... 2>&1) || rc=$?
  [ -n "$out" ] && echo "$out"
  if [ "$rc" -ne 0 ] && unreachable "$out"; then
    echo "!!!! WARNING: GOVULNCHECK DID NOT RUN: its vulnerability database cannot be reached from here !!!!"
    return 0
  fi
  return "$rc"
}

# unreachable tells a network that cannot reach the database from every other failure.
unreachable() {
  grep -qi 'vuln' <<<"$1" &&
    grep -Eq 'no such host|dial tcp|i/o timeout|connection refused|network is unreachable|TLS handshake timeout|proxyconnect|: (Forbidden|Bad Gateway|Gateway Timeout|Service Unavailable|Proxy Authentication Required)$' <<<"$1"
}

cd "$ROOT"
step "tools" "$ROOT/scripts/ci-tools.sh"
step "shell syntax" check_shell
step "gofumpt" check_format
step "go vet" each_module go vet ./...
step "golangci-lint" each_module golangci-lint run --allow-parallel-runners --config "$ROOT/.golangci.yml" ./...
step "go mod tidy -diff" each_module go mod tidy -diff
step "govulncheck" each_module vulnerabilities
