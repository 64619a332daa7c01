#!/bin/sh
# Runs a Redis Cluster on this machine, four primaries and four replicas in two zones, until Ctrl-C. Needs Go and redis-server.
# Arguments go to the program (cluster.sh --help).
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

"$root/scripts/check-tools.sh" go redis
(cd e2e && go build -buildvcs=false -o "$root/bin/cluster" ./cmd/cluster)

# In place of this shell, so that signals reach the program itself.
exec bin/cluster "$@"
