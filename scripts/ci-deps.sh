#!/usr/bin/env bash
# Installs what the tests drive from outside: the real Envoy and the third-party parsers of header fields.
set -euo pipefail
# shellcheck source=scripts/ci-lib.sh
. "$(dirname "$0")/ci-lib.sh"

"$ROOT/scripts/install-envoy.sh"
"$ROOT/scripts/install-checkers.sh"
