#!/usr/bin/env bash
# Installs the Go tools of this project at pinned versions into .tools/bin, through the Go module proxy. A tool that is
# there at the right version, built by the Go in use, is left alone.
#
#   scripts/ci-tools.sh [golangci-lint | gofumpt | govulncheck | kustomize]...     default: the first three
set -euo pipefail
# shellcheck source=scripts/ci-lib.sh
. "$(dirname "$0")/ci-lib.sh"

need go "Go 1.26 or newer: https://go.dev/dl"

# package_of TOOL prints the package and the pinned version.
package_of() {
  case $1 in
  golangci-lint) echo github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.14.0 ;;
  gofumpt) echo mvdan.cc/gofumpt@v0.12.0 ;;
  kustomize) echo sigs.k8s.io/kustomize/kustomize/v5@v5.7.1 ;;
  govulncheck) echo golang.org/x/vuln/cmd/govulncheck@v1.9.0 ;;
  *)
    echo "unknown tool: $1" >&2
    return 1
    ;;
  esac
}

install_tool() {
  local tool=$1 package stamp want start=$SECONDS
  package=$(package_of "$tool")
  stamp="$ROOT/.tools/bin/.$tool.version"
  want="$package $(go env GOVERSION)"
  if [ -x "$ROOT/.tools/bin/$tool" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$want" ]; then
    return
  fi
  mkdir -p "$ROOT/.tools/bin"
  # From outside the module: the project's go.mod has no say in a tool's dependencies.
  (cd / && GOBIN="$ROOT/.tools/bin" go install "$package")
  echo "$want" >"$stamp"
  echo "installed $package in $((SECONDS - start)) s"
}

if [ $# -eq 0 ]; then set -- gofumpt golangci-lint govulncheck; fi
for tool in "$@"; do install_tool "$tool"; done
