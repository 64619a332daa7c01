"""Prints what http-sf makes of each file of field lines, one JSON object a file."""

import json
import sys

import http_sf


def read(lines):
    found = {}
    for line in lines:
        name, value = line.rstrip(b"\n").split(b":", 1)
        name = name.decode("ascii").lower()
        if name == "retry-after":
            found[name] = http_sf.parse(value, tltype="item")[0]
            continue
        items = http_sf.parse(value, tltype="list")
        if not all(type(item) is str for item, _ in items):
            sys.exit(f"{name}: an item that is not a String: {items}")
        found[name] = [[item, dict(params)] for item, params in items]
    return found


for path in sys.argv[1:]:
    with open(path, "rb") as file:
        print(json.dumps(read(file)))
