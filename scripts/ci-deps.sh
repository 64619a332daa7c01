#!/usr/bin/env bash
# Installs what the tests drive from outside: the real Envoy, the third-party parsers of header fields, and redis-server, which comes from
# the system's packages.
set -euo pipefail
# shellcheck source=scripts/ci-lib.sh
. "$(dirname "$0")/ci-lib.sh"

# install_redis installs redis-server as root on Debian or Ubuntu, and stops with one clear line elsewhere.
install_redis() {
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    "$ROOT/scripts/check-tools.sh" redis
    return
  fi
  echo "installing redis-server ..."
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends redis-server >/dev/null
  "$ROOT/scripts/check-tools.sh" redis
}

if ! command -v redis-server >/dev/null 2>&1; then install_redis; fi
"$ROOT/scripts/install-envoy.sh"
"$ROOT/scripts/install-checkers.sh"
