"""Reads field lines on stdin and prints what http-sf makes of them, one JSON object."""

import json
import sys

import http_sf

found = {}
for line in sys.stdin.buffer.read().splitlines():
    name, value = line.split(b":", 1)
    name = name.decode("ascii").lower()
    if name == "retry-after":
        found[name] = http_sf.parse(value, tltype="item")[0]
        continue
    items = http_sf.parse(value, tltype="list")
    if not all(type(item) is str for item, _ in items):
        sys.exit(f"{name}: an item that is not a String: {items}")
    found[name] = [[item, dict(params)] for item, params in items]
print(json.dumps(found, sort_keys=True, separators=(",", ":")))
