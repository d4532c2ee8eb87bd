# Debian packages. Sourced by bash scripts.
# shellcheck shell=bash

# need PACKAGE...: install the Debian packages that are missing
need() {
  local package missing=()
  for package in "$@"; do dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package"); done
  if [ ${#missing[@]} -eq 0 ]; then return; fi
  echo "installing ${missing[*]}" >&2
  local wait=DPkg::Lock::Timeout=600 # another installation may be under way
  apt-get -o "$wait" update -qq >&2
  DEBIAN_FRONTEND=noninteractive apt-get -o "$wait" install -y -qq --no-install-recommends "${missing[@]}" >&2
}
