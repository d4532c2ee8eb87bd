# The one node: container runtime, pod network, DNS, Services, kubelet.
# shellcheck shell=bash

# restrict_oom_score_adj: some kernels refuse to lower oom_score_adj, and runc dies of that.
start_containerd() {
  cat > "$state/containerd.toml" <<TOML
version = 2
root = "$containers"
state = "$state/containerd"
[grpc]
  address = "$socket"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "localhost/pause:1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$state/cni"
TOML
  start containerd -c "$state/containerd.toml"
  wait_for 20 ctr version
}

# The bridge exists before the first pod, because API server, kubelet and DNS listen on its address.
make_pod_network() {
  cat > "$state/cni/10-pods.conflist" <<CNI
{"cniVersion": "0.4.0", "name": "colocated-pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "$pod_network"}]]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
CNI
  ip link show cni0 >/dev/null 2>&1 || ip link add cni0 type bridge
  ip addr replace "$node_ip/24" dev cni0
  ip link set cni0 up
  echo 1 > /proc/sys/net/ipv4/ip_forward
}

load_pause_image() {
  if ctr images ls -q | grep -x localhost/pause:1 >/dev/null; then return; fi
  local work; work=$(mktemp -d)
  cp "$state/bin/pause" "$work/"
  printf 'FROM scratch\nCOPY pause /pause\nENTRYPOINT ["/pause"]\n' > "$work/Dockerfile"
  BUILDAH_ISOLATION=chroot buildah bud -q -t localhost/pause:1 "$work" >/dev/null
  buildah push -q localhost/pause:1 "oci-archive:$work/pause.tar:localhost/pause:1"
  ctr images import "$work/pause.tar" >/dev/null
  rm -rf "$work"
}

start_services() {
  cat > "$state/Corefile" <<COREFILE
.:53 {
  bind $node_ip
  errors
  kubernetes cluster.local {
    kubeconfig $kubeconfig colocated-local
  }
  cache 5
}
COREFILE
  start "$state/bin/coredns" -conf "$state/Corefile"
  cat > "$state/proxy.yaml" <<YAML
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clusterCIDR: $pod_network
hostnameOverride: $node
clientConnection: {kubeconfig: $kubeconfig}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
YAML
  start "$state/bin/kube-proxy" --config="$state/proxy.yaml"
}

# Works on cgroup v1 and v2, without QoS cgroups.
start_kubelet() {
  cat > "$state/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $state/pki/ca.crt}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix://$socket
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
clusterDomain: cluster.local
clusterDNS: [$node_ip]
# Without cgroups by QoS class this kubelet dies (nil pointer in doPodResizeAction, 1.34.4) when it takes a pod that was
# deleted by force for one whose resources have changed.
featureGates: {InPlacePodVerticalScaling: false}
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 100Mi}
podLogsDir: $state/pods
YAML
  start "$state/bin/kubelet" --config="$state/kubelet.yaml" --kubeconfig="$state/kubelet.kubeconfig" \
    --hostname-override="$node" --node-ip="$node_ip" --root-dir="$state/kubelet" --cert-dir="$state/kubelet/pki"
  wait_for 60 kubectl get node "$node"
  kubectl wait --for=condition=Ready "node/$node" --timeout=60s >/dev/null
}
