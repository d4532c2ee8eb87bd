# Python environments in the cache folder, outside the checkout, keyed by pyproject.toml
# down to the settings of developers' tools. Sourced by bash scripts.
# shellcheck shell=bash
cache=${COLOCATED_CACHE:-$HOME/.cache/colocated-rl}

# part NAME COMMAND...: run one part of the work and say how long it took
part() {
  local name=$1 start=$SECONDS; shift
  printf '\n== %s\n' "$name"
  "$@"
  printf '== %s: %d s\n' "$name" $((SECONDS - start))
}

# venv NAME EXTRA...: print the path of an environment with pyproject.toml's dependencies and these extras
venv() {
  local name=$1 dir; shift
  dir=$cache/venv/$name-$(sed '/^\[tool\.ruff\]/,$d' pyproject.toml | sha256sum | cut -c1-12)
  if [ ! -e "$dir/.complete" ]; then
    python3 -m uv --version >/dev/null 2>&1 || python3 -m pip install -q --break-system-packages uv >&2 || python3 -m pip install -q uv >&2
    rm -rf "$cache/venv/$name-"*
    python3 -m uv venv -q --python "$(python3 -c 'import sys; print(sys.executable)')" "$dir" >&2
    python3 -m uv pip install -q --python "$dir/bin/python" -r pyproject.toml "${@/#/--extra=}" >&2
    touch "$dir/.complete"
  fi
  echo "$dir"
}
