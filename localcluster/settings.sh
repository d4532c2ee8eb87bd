# What every script of this folder needs to know: folders, how a component is started and ended, Debian packages.
# shellcheck shell=bash
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$here/../tools/packages.sh"
cache=${COLOCATED_CACHE:-$HOME/.cache/colocated-rl}/cluster
state=$cache/state
containers=$cache/containerd          # images live here, so that they outlive the cluster
socket=$state/containerd.sock
kubeconfig=$state/admin.kubeconfig

node=node-0
node_ip=10.244.0.1                    # the pod bridge's own address: there on every machine, with or without a network
pod_network=10.244.0.0/24
service_network=10.96.0.0/16
etcd_url=http://127.0.0.1:23790     # not 2379: an etcd of the machine may listen there

say() { echo "$*" >&2; }
die() { say "$*"; exit 1; }

# alone: one script at a time changes the cluster; the others wait (processes that `start` starts do not hold the lock)
alone() {
  mkdir -p "$cache"
  exec 9>"$cache/lock"
  flock 9
}

docker_answers() { command -v docker >/dev/null && timeout 5 docker info >/dev/null 2>&1; }

# wait_for SECONDS COMMAND...: until the command succeeds
wait_for() {
  local end=$((SECONDS + $1)); shift
  until "$@" >/dev/null 2>&1; do
    if [ $SECONDS -ge $end ]; then die "gave up waiting for: $* (logs: $state/logs)"; fi
    sleep 0.2
  done
}

# start PROGRAM ARGUMENT...: in the background, in a session of its own; the log and the process id go by the program's name
start() {
  local name; name=$(basename "$1")
  setsid "$@" </dev/null >> "$state/logs/$name.log" 2>&1 9>&- &
  echo $! > "$state/run/$name.pid"
}

# running NAME: whether the process that start() noted still is that program (ids are used again after a reboot)
running() {
  local pid; pid=$(cat "$state/run/$1.pid" 2>/dev/null) || return 1
  tr '\0' ' ' 2>/dev/null < "/proc/$pid/cmdline" | grep "$1" >/dev/null
}

# stop NAME: SIGTERM, and SIGKILL after 5 s (a draining API server holds its port for long)
stop() {
  if ! running "$1"; then rm -f "$state/run/$1.pid"; return; fi
  local pid i; pid=$(cat "$state/run/$1.pid")
  kill -- "-$pid" 2>/dev/null || true
  for ((i = 0; i < 50; i++)); do kill -0 -- "-$pid" 2>/dev/null || break; sleep 0.1; done
  kill -9 -- "-$pid" 2>/dev/null || true
  rm -f "$state/run/$1.pid"
}

ctr() { command ctr -a "$socket" -n k8s.io "$@"; }
kubectl() { "$state/bin/kubectl" --kubeconfig "$kubeconfig" "$@"; }

# Images are built without a daemon; the store is the machine's own, outside the checkout.
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=overlay

# image_name operator|runtime ACCELERATOR: the tag says what the image was made of
image_name() {
  local target=$1 accelerator=$2 constraints=operator files=(operator/src) tag=''
  if [ "$target" = runtime ]; then
    constraints=runtime-$accelerator files=(examples/fetch_smollm2.py) tag=$accelerator-
  fi
  files+=(Dockerfile runtime/src constraints/install "constraints/$constraints.txt")
  tag+=$(cd "$here/.." && {
    sed '/^\[tool\.ruff\]/,$d' pyproject.toml
    find "${files[@]}" -type f ! -name '*.pyc' ! -path '*.egg-info/*' -print0 | sort -z | xargs -0 sha256sum
  } | sha256sum | cut -c1-12)
  echo "localhost/colocated-$target:$tag"
}
