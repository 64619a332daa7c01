#!/bin/sh
# Says what is missing of the tools that are named as arguments: go, node, redis, postgres, chromium, ip, prometheus. Python is checked where it is used, by install-envoy.sh and
# install-checkers.sh.
set -eu

missing=0
say() {
	printf 'missing: %s\n' "$*" >&2
	missing=1
}

# newer_than HAVE MAJOR MINOR: is version HAVE, such as 1.26.3 or 20.1.0, at least MAJOR.MINOR?
newer_than() {
	major=${1%%.*}
	rest=${1#*.}
	minor=${rest%%[!0-9]*}
	[ "$major" -gt "$2" ] || { [ "$major" -eq "$2" ] && [ "$minor" -ge "$3" ]; }
}

check_go() {
	if ! command -v go >/dev/null 2>&1; then
		say "Go 1.26 or later (https://go.dev/dl)"
		return
	fi
	# Asked for inside the module: a Go that fetches newer toolchains by itself answers with the one it would use.
	if ! version=$(cd "$(dirname "$0")/.." && go env GOVERSION 2>/dev/null) || [ -z "$version" ]; then
		say "Go 1.26 or later (https://go.dev/dl): the one here cannot build this module and could not fetch a newer toolchain"
		return
	fi
	version=${version#go}
	newer_than "${version%%[!0-9.]*}" 1 26 || say "Go 1.26 or later (https://go.dev/dl): the one here is $version"
}

check_node() {
	if ! command -v node >/dev/null 2>&1 || ! command -v npm >/dev/null 2>&1; then
		say "Node.js 18 or later with npm (https://nodejs.org)"
		return
	fi
	version=$(node --version)
	newer_than "${version#v}" 18 0 || say "Node.js 18 or later (https://nodejs.org): the one here is $version"
}

check_redis() {
	if ! command -v redis-server >/dev/null 2>&1; then
		say "redis-server 7 or later (Debian, Ubuntu: apt-get install redis-server; macOS: brew install redis)"
		return
	fi
	version=$(redis-server --version | sed 's/.* v=\([0-9.]*\).*/\1/')
	newer_than "$version" 7 0 || say "redis-server 7 or later: the one here is $version"
}

check_postgres() {
	command -v initdb >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 ||
		say "PostgreSQL 13 or later (Debian, Ubuntu: apt-get install postgresql; macOS: brew install postgresql)"
}

check_chromium() {
	command -v chromium >/dev/null 2>&1 || [ -x "${CHROMIUM:-}" ] ||
		say "chromium (Debian: apt-get install chromium; elsewhere name Chrome or Chromium with CHROMIUM=)"
}

check_ip() {
	command -v ip >/dev/null 2>&1 || say "ip (Debian, Ubuntu: apt-get install iproute2)"
}

check_prometheus() {
	command -v prometheus >/dev/null 2>&1 && command -v promtool >/dev/null 2>&1 ||
		say "prometheus with promtool (Debian, Ubuntu: apt-get install prometheus)"
}

for tool in "$@"; do
	"check_$tool"
done
exit $missing
