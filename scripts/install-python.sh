#!/bin/sh
# Installs a Python program with all that it needs, at pinned versions, into a directory of its own in .tools/ (once), and prints that directory,
# which is for PYTHONPATH. Needs Python 3.10 or later with pip. Nothing outside .tools/ is touched.
#
#   scripts/install-python.sh kubernetes-validate | mkdocs
set -eu

case ${1:-} in
kubernetes-validate)
	packages="kubernetes-validate==1.37.0 attrs==26.1.0 importlib-resources==7.1.0 jsonschema==4.26.0 jsonschema-specifications==2025.9.1
		packaging==26.4 pyyaml==6.0.4 referencing==0.37.0 rpds-py==2026.9.1 typing-extensions==4.16.0"
	;;
mkdocs)
	packages="mkdocs-material==9.8.2 babel==2.19.0 backrefs==8.3.1 certifi==2026.10.19.post1 charset-normalizer==3.5.3 click==8.5.1
		colorama==0.4.6 ghp-import==2.1.0 idna==3.20 jinja2==3.1.6 markdown==3.11.3 markupsafe==3.0.4 mergedeep==1.3.4
		mkdocs-get-deps==0.2.2 mkdocs-material-extensions==1.3.1 mkdocs==1.6.1 packaging==26.4 paginate==0.5.7 pathspec==1.1.1
		platformdirs==4.14.8 pygments==2.21.0 pymdown-extensions==13.1.2 python-dateutil==4.0.0 pyyaml-env-tag==1.1 pyyaml==6.0.4
		requests==2.34.2 tzdata==2026.6 urllib3==2.8.0 watchdog==7.1.0"
	;;
*)
	echo "usage: $0 kubernetes-validate | mkdocs" >&2
	exit 2
	;;
esac

root=$(cd "$(dirname "$0")/.." && pwd)
say() { printf 'install-python: %s\n' "$*" >&2; }

python=${PYTHON:-python3}
if ! command -v "$python" >/dev/null 2>&1 || ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || ! "$python" -m pip --version >/dev/null 2>&1; then
	say "needs Python 3.10 or later with pip; name one with PYTHON=."
	exit 1
fi

# The directory is named after the list and the Python, so that a change of either installs anew.
name=$(printf '%s' "$packages $("$python" --version)" | cksum | cut -d' ' -f1)
dir=$root/.tools/$1-$name
if [ -d "$dir" ]; then
	echo "$dir"
	exit 0
fi

say "installing $1 into .tools/ (once) ..."
mkdir -p "$root/.tools"
part=$(mktemp -d "$root/.tools/$1-part.XXXXXX")
trap 'rm -rf "$part"' EXIT
trap 'exit 130' INT TERM

# shellcheck disable=SC2086 # the list is words
if ! "$python" -m pip install --quiet --no-deps --target "$part/all" $packages >"$part/log" 2>&1; then
	sed 's/^/  pip: /' "$part/log" >&2
	say "installation failed. Is the package index reachable from here?"
	exit 1
fi
if ! mv "$part/all" "$dir" 2>/dev/null && [ ! -d "$dir" ]; then
	say "cannot write $dir"
	exit 1
fi
echo "$dir"
