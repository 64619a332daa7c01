"""Reads field lines on stdin and prints what retryheader makes of them, one JSON object."""

import json
import sys

import retryheader


def params(**values):
    return {name: value for name, value in values.items() if value is not None}


found = {}
for line in sys.stdin.buffer.read().decode("ascii").splitlines():
    name, value = line.split(":", 1)
    name = name.lower()
    if name == "ratelimit":
        found[name] = [[i.policy, {**params(r=i.remaining, t=i.window), **i.extra}] for i in retryheader.parse_ratelimit(value)]
    elif name == "ratelimit-policy":
        found[name] = [[i.name, {**params(q=i.quota, w=i.window), **i.extra}] for i in retryheader.parse_ratelimit_policy(value)]
    elif name == "retry-after":
        found[name] = int(retryheader.parse_retry_after(value))
    else:
        sys.exit(f"unexpected field {name}")
print(json.dumps(found, sort_keys=True, separators=(",", ":")))
