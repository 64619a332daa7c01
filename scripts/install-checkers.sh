#!/bin/sh
# Installs into .tools/checkers (once) the parsers of other projects that the end-to-end tests hold our header fields against, and prints
# that directory. Needs Python 3.10 or later with pip, and Node.js 18 or later with npm. Nothing outside .tools/ is touched.
set -eu

# The directory is named after these lists, so that a change here installs anew.
python_packages="retryheader==1.0.0 http-sf==1.5.0 typing-extensions==4.16.0"
node_packages="structured-headers@2.1.0"

root=$(cd "$(dirname "$0")/.." && pwd)
name=$(printf '%s' "$python_packages $node_packages" | cksum | cut -d' ' -f1)
dir=$root/.tools/checkers-$name

if [ -d "$dir" ]; then
	echo "$dir"
	exit 0
fi

say() { printf 'install-checkers: %s\n' "$*" >&2; }

python=${PYTHON:-python3}
if ! command -v "$python" >/dev/null 2>&1 || ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || ! "$python" -m pip --version >/dev/null 2>&1; then
	say "needs Python 3.10 or later with pip; name one with PYTHON=."
	exit 1
fi
"$root/scripts/check-tools.sh" node

say "installing $python_packages $node_packages into .tools/ (once) ..."
mkdir -p "$root/.tools"
part=$(mktemp -d "$root/.tools/checkers-part.XXXXXX")
trap 'rm -rf "$part"' EXIT
trap 'exit 130' INT TERM

# shellcheck disable=SC2086 # the lists are words
if ! "$python" -m pip install --quiet --no-deps --target "$part/python" $python_packages >"$part/log" 2>&1 ||
	! npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$part" $node_packages >>"$part/log" 2>&1; then
	sed 's/^/  /' "$part/log" >&2
	say "installation failed. Are the package registries reachable from here?"
	exit 1
fi
if ! mv "$part" "$dir" 2>/dev/null && [ ! -d "$dir" ]; then
	say "cannot write $dir"
	exit 1
fi
echo "$dir"
