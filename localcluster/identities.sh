# Certificates and kubeconfigs: one CA, one client certificate a component, kubeconfigs made from them.
# shellcheck shell=bash

sign() { # NAME SUBJECT [EXTENSIONS]
  openssl req -newkey rsa:2048 -nodes -keyout "pki/$1.key" -out "pki/$1.csr" -subj "$2"
  openssl x509 -req -in "pki/$1.csr" -CA pki/ca.crt -CAkey pki/ca.key -CAcreateserial -out "pki/$1.crt" -days 365 \
    -extfile <(echo "${3:-}")
}

make_kubeconfig() { # USER
  local file=$1.kubeconfig
  command "$state/bin/kubectl" config --kubeconfig "$file" set-cluster colocated-local --embed-certs \
    --server=https://127.0.0.1:6443 --certificate-authority=pki/ca.crt
  command "$state/bin/kubectl" config --kubeconfig "$file" set-credentials "$1" --embed-certs \
    --client-certificate="pki/$1.crt" --client-key="pki/$1.key"
  command "$state/bin/kubectl" config --kubeconfig "$file" set-context colocated-local --cluster=colocated-local --user="$1"
  command "$state/bin/kubectl" config --kubeconfig "$file" use-context colocated-local
}

make_identities() {
  cd "$state"
  openssl genrsa -out pki/sa.key 2048
  openssl rsa -in pki/sa.key -pubout -out pki/sa.pub
  openssl req -x509 -newkey rsa:2048 -nodes -keyout pki/ca.key -out pki/ca.crt -subj /CN=colocated-local -days 365
  sign apiserver /CN=kube-apiserver \
    "subjectAltName=DNS:localhost,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:${service_network%.*}.1,IP:$node_ip"
  sign admin /O=system:masters/CN=admin
  sign controller-manager /CN=system:kube-controller-manager
  sign scheduler /CN=system:kube-scheduler
  sign kubelet "/O=system:nodes/CN=system:node:$node"
  local user
  for user in admin controller-manager scheduler kubelet; do make_kubeconfig "$user"; done
}
