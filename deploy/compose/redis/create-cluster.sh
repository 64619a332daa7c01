#!/bin/sh
# Makes one Redis Cluster of empty nodes: create-cluster.sh PRIMARY REPLICA [PRIMARY REPLICA …], by address. It ends when every node
# serves. A cluster that is there already is left as it is.
set -eu
REDISCLI_AUTH=$(cat /run/secrets/redis-password)
export REDISCLI_AUTH

# on ADDRESS COMMAND… asks a node.
on() {
	address=$1
	shift
	redis-cli -e -h "$address" "$@"
}

# await WHAT COMMAND… waits until the command succeeds, a minute at most.
await() {
	what=$1
	shift
	for _ in $(seq 600); do
		if "$@" >/dev/null 2>&1; then return; fi
		sleep 0.1
	done
	echo "waited in vain for $what" >&2
	exit 1
}

says() { on "$1" cluster info | grep -q "^$2"; }
in_step() { on "$1" info replication | grep -q '^master_link_status:up'; }

nodes=$*
count=$#
first=$1
if says "$first" cluster_state:ok; then
	echo "the cluster is there"
	exit 0
fi

shard=0
while [ $# -gt 0 ]; do
	from=$((16384 * 2 * shard / count))
	shard=$((shard + 1))
	on "$1" cluster addslotsrange "$from" $((16384 * 2 * shard / count - 1)) >/dev/null
	on "$1" cluster set-config-epoch "$shard" >/dev/null
	for node in "$1" "$2"; do
		if [ "$node" != "$first" ]; then on "$first" cluster meet "$node" 6379 >/dev/null; fi
	done
	shift 2
done
for node in $nodes; do await "$node to know all nodes" says "$node" "cluster_known_nodes:$count"; done

# shellcheck disable=SC2086 # one word an address
set -- $nodes
while [ $# -gt 0 ]; do
	await "$2 to be a replica of $1" on "$2" cluster replicate "$(on "$1" cluster myid)"
	await "$2 to be in step with $1" in_step "$2"
	shift 2
done
for node in $nodes; do await "$node to serve" says "$node" cluster_state:ok; done
echo "a cluster of $count nodes"
