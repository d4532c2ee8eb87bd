# etcd, API server, controller-manager and scheduler as plain processes.
# shellcheck shell=bash

start_etcd() {
  start etcd --data-dir="$state/etcd" --listen-client-urls="$etcd_url" --advertise-client-urls="$etcd_url" \
    --listen-peer-urls=http://127.0.0.1:23800 \
    --initial-advertise-peer-urls=http://127.0.0.1:23800 --initial-cluster=default=http://127.0.0.1:23800
}

start_apiserver() {
  start "$state/bin/kube-apiserver" --etcd-servers="$etcd_url" --secure-port=6443 --advertise-address="$node_ip" \
    --tls-cert-file="$state/pki/apiserver.crt" --tls-private-key-file="$state/pki/apiserver.key" \
    --client-ca-file="$state/pki/ca.crt" --service-account-key-file="$state/pki/sa.pub" \
    --service-account-signing-key-file="$state/pki/sa.key" \
    --service-account-issuer=https://kubernetes.default.svc --service-cluster-ip-range="$service_network" \
    --authorization-mode=Node,RBAC --allow-privileged=true --kubelet-preferred-address-types=InternalIP \
    --kubelet-client-certificate="$state/pki/admin.crt" --kubelet-client-key="$state/pki/admin.key"
  wait_for 60 kubectl get --raw /readyz
}

start_controllers() {
  start "$state/bin/kube-controller-manager" --kubeconfig="$state/controller-manager.kubeconfig" --leader-elect=false \
    --service-account-private-key-file="$state/pki/sa.key" --root-ca-file="$state/pki/ca.crt" \
    --use-service-account-credentials
  # A pod whose claim is bound while it is looked at for the first time can miss that; it is looked at again after 10 s, not 5 min.
  start "$state/bin/kube-scheduler" --kubeconfig="$state/scheduler.kubeconfig" --leader-elect=false \
    --pod-max-in-unschedulable-pods-duration=10s
}
