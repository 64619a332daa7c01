#!/bin/sh
# Runs the demo: a small upstream, envoy-rls and a real Envoy in front, until Ctrl-C. Needs Go and Python 3. STORE=redis: two envoy-rls on a
# Redis Cluster, which the demo starts (needs redis-server) unless REDIS_URL names one. Arguments go to the demo (run.sh --help), whose
# ports also come from the environment (DEMO_PORT and others).
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

case "${STORE:-memory}${REDIS_URL:-}" in
redis) "$root/scripts/check-tools.sh" go redis ;;
*) "$root/scripts/check-tools.sh" go ;;
esac
envoy=$("$root/scripts/install-envoy.sh")

echo "building ..." >&2
make -s build
(cd e2e && go build -buildvcs=false -o "$root/bin/demo" ./cmd/demo)

# In place of this shell, so that signals reach the demo itself.
exec bin/demo --envoy "$envoy" --store "${STORE:-memory}" --redis-url "${REDIS_URL:-}" "$@"
