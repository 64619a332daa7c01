#!/usr/bin/env bash
# Installs what the tests drive from outside: the real Envoy, the third-party parsers of header fields, kustomize and the schemas of Kubernetes,
# what drives a browser; and redis-server, PostgreSQL and Chromium, which come from the system's packages.
set -euo pipefail
# shellcheck source=scripts/ci-lib.sh
. "$(dirname "$0")/ci-lib.sh"

# install TOOL PACKAGE installs a package as root on Debian or Ubuntu unless the tool is there, and stops with one clear line elsewhere.
install() {
  if "$ROOT/scripts/check-tools.sh" "$1" 2>/dev/null; then return; fi
  if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing $2 ..."
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends "$2" >/dev/null
  fi
  "$ROOT/scripts/check-tools.sh" "$1"
}

install redis redis-server
install postgres postgresql
install chromium chromium
install prometheus prometheus # and promtool
# As root a zone of a Redis Cluster is cut off, and the demo of docker-compose.yml run, in network namespaces; without root those tests are skipped.
if [ "$(id -u)" -eq 0 ] && [ "$(uname)" = Linux ]; then
  install ip iproute2
fi
"$ROOT/scripts/install-envoy.sh"
"$ROOT/scripts/install-checkers.sh"
"$ROOT/scripts/install-browser-driver.sh" >/dev/null
"$ROOT/scripts/install-python.sh" kubernetes-validate
"$ROOT/scripts/ci-tools.sh" kustomize
