#!/bin/sh
# Does this node answer?
set -eu
REDISCLI_AUTH=$(cat /run/secrets/redis-password)
export REDISCLI_AUTH
redis-cli -e ping
