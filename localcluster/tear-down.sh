# End everything that `up` started, also after a crash or a reboot: processes, containers, mounts, network.
# shellcheck shell=bash

tear_down() {
  if [ ! -d "$state/run" ]; then return; fi
  local name
  for name in kubelet volumes kube-proxy coredns kube-scheduler kube-controller-manager kube-apiserver etcd; do
    stop "$name" & # together: an API server takes its time
  done
  wait
  remove_containers
  remove_mounts
  remove_network
}

# A containerd that is gone is started once more: it knows the containers that outlived it.
remove_containers() {
  if [ ! -f "$state/containerd.toml" ]; then return; fi
  running containerd || { start containerd -c "$state/containerd.toml"; wait_for 20 ctr version; }
  local ids namespaces
  mapfile -t ids < <(ctr containers ls -q)
  if [ ${#ids[@]} -gt 0 ]; then
    mapfile -t namespaces < <(for id in "${ids[@]}"; do ctr containers info "$id"; done | grep -o '/var/run/netns/cni-[0-9a-f-]*' | sort -u)
    mapfile -t tasks < <(ctr tasks ls -q)
    if [ ${#tasks[@]} -gt 0 ]; then ctr tasks rm -f "${tasks[@]}" >/dev/null 2>&1 || true; fi
    ctr containers rm "${ids[@]}" >/dev/null 2>&1 || true
    for namespace in "${namespaces[@]}"; do umount -l "$namespace" 2>/dev/null || true; rm -f "$namespace"; done
  fi
  stop containerd
}

remove_mounts() {
  local mount
  for mount in $(awk -v below="$state/" 'index($2, below) == 1 {print $2}' /proc/mounts | tac); do
    umount -l "$mount" 2>/dev/null || true
  done
}

remove_network() {
  ip link del cni0 2>/dev/null || true
  rm -rf /var/lib/cni/networks/colocated-pods /var/lib/cni/results/colocated-pods-*
  local table
  for table in nat filter mangle; do
    iptables-save -t "$table" 2>/dev/null | grep -vE 'KUBE-|CNI-' | iptables-restore -T "$table" 2>/dev/null || true
  done
}
