#!/bin/sh
# Runs the demo: a small upstream, envoy-rls with the embedded store, and a real Envoy in front, until Ctrl-C. Needs Go and Python 3.
# Arguments go to the demo (run.sh --help), whose ports also come from the environment (DEMO_PORT and others).
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

"$root/scripts/check-tools.sh" go
envoy=$("$root/scripts/install-envoy.sh")

echo "building ..." >&2
make -s build
(cd e2e && go build -buildvcs=false -o "$root/bin/demo" ./cmd/demo)

# In place of this shell, so that signals reach the demo itself.
exec bin/demo --envoy "$envoy" "$@"
