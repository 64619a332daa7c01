#!/bin/sh
# Builds the documents as a site with mkdocs-material, which is installed into .tools/ (once). A link that leads nowhere is a failure.
#
#   scripts/site.sh [DIRECTORY [PROJECT]]     default: .run/site of this project
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
packages=$("$root/scripts/install-python.sh" mkdocs)
cd "${2:-$root}"
# Not --quiet: it silences warnings, and then --strict does not count them.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! NO_MKDOCS_2_WARNING=1 PYTHONPATH=$packages "${PYTHON:-python3}" -m mkdocs build --strict --clean --site-dir "${1:-$root/.run/site}" >"$log" 2>&1; then
	cat "$log" >&2
	exit 1
fi
