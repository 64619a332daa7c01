#!/bin/sh
# Starts a node of the demo's Redis Cluster: node.sh ADDRESS, the one in its zone, by which others call it and from which it calls. The
# password is in a file that only the node reads, not on a command line.
set -eu
umask 077
password=$(cat /run/secrets/redis-password)
{
	cat /etc/redis/redis.conf
	echo "cluster-announce-ip $1"
	echo "bind-source-addr $1"
	echo "requirepass $password"
	echo "masterauth $password"
} >/data/redis.conf
exec redis-server /data/redis.conf
