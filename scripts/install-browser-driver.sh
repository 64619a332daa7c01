#!/bin/sh
# Installs into .tools/ (once) what drives a browser in the tests of the web page, and prints its directory. Needs Node.js 18 or later with npm; the
# browser itself is the system's Chromium. Nothing outside .tools/ is touched.
set -eu

package=playwright-core
version=1.65.1

root=$(cd "$(dirname "$0")/.." && pwd)
dir=$root/.tools/$package-$version

if [ -d "$dir" ]; then
	echo "$dir"
	exit 0
fi

say() { printf 'install-browser-driver: %s\n' "$*" >&2; }

"$root/scripts/check-tools.sh" node
say "installing $package $version into .tools/ (once) ..."
mkdir -p "$root/.tools"
part=$(mktemp -d "$root/.tools/driver-part.XXXXXX")
trap 'rm -rf "$part"' EXIT
trap 'exit 130' INT TERM
if ! npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$part" "$package@$version" >"$part/log" 2>&1; then
	sed 's/^/  /' "$part/log" >&2
	say "installation failed. Is the npm registry reachable from here?"
	exit 1
fi
if ! mv "$part" "$dir" 2>/dev/null && [ ! -d "$dir" ]; then
	say "cannot write $dir"
	exit 1
fi
echo "$dir"
