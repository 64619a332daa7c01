# Sourced by the other scripts: where the project is, its modules, and steps that say how long they took.
# shellcheck shell=bash

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export ROOT
export PATH="$ROOT/.tools/bin:$PATH"

# A clone without git metadata, or one owned by somebody else, must build as well: nothing here needs a VCS stamp.
case " ${GOFLAGS:-} " in
*" -buildvcs="*) ;;
*) export GOFLAGS="${GOFLAGS:+$GOFLAGS }-buildvcs=false" ;;
esac

# modules prints the folders of the Go modules, the root first.
modules() {
  local dir
  for dir in "$ROOT" "$ROOT/e2e" "$ROOT/bench" "$ROOT/deploy/monitoring" "$ROOT"/examples/*; do
    if [ -f "$dir/go.mod" ]; then echo "$dir"; fi
  done
}

# go_files prints every Go file of the project, with or without git.
go_files() {
  find "$ROOT" \( -name .git -o -name .tools -o -name .run -o -name node_modules \) -prune -o -name '*.go' -print
}

# need COMMAND WHY stops with one clear line when a command is missing.
need() {
  if ! command -v "$1" >/dev/null 2>&1; then
    echo "missing: $1 ($2)" >&2
    exit 1
  fi
}

# step NAME COMMAND... runs a command between two lines, the last of which tells the time it took. It ends the script if
# the command fails.
step() {
  local name=$1 start=$SECONDS rc=0
  shift
  printf '\n==> %s\n' "$name"
  "$@" || rc=$?
  if [ "$rc" -ne 0 ]; then
    printf '<== %s FAILED (exit %d) after %d s\n' "$name" "$rc" $((SECONDS - start)) >&2
    exit "$rc"
  fi
  printf '<== %s: %d s\n' "$name" $((SECONDS - start))
}
