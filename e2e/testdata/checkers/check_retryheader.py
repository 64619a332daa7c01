"""Prints what retryheader makes of each file of field lines, one JSON object a file."""

import json
import sys

import retryheader


def params(**values):
    return {name: value for name, value in values.items() if value is not None}


def read(lines):
    found = {}
    for line in lines:
        name, value = line.rstrip("\n").split(":", 1)
        name = name.lower()
        if name == "ratelimit":
            found[name] = [[i.policy, {**params(r=i.remaining, t=i.window), **i.extra}] for i in retryheader.parse_ratelimit(value)]
        elif name == "ratelimit-policy":
            found[name] = [[i.name, {**params(q=i.quota, w=i.window), **i.extra}] for i in retryheader.parse_ratelimit_policy(value)]
        elif name == "retry-after":
            found[name] = int(retryheader.parse_retry_after(value))
        else:
            sys.exit(f"unexpected field {name}")
    return found


for path in sys.argv[1:]:
    with open(path, encoding="ascii") as file:
        print(json.dumps(read(file)))
