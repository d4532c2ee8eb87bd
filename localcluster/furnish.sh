# What jobs and tests expect of the cluster, whichever way it was made.
# shellcheck shell=bash

# furnish NODE PROVISIONER BINDING_MODE: eight GPUs, advertised and scheduled like real ones, and the default storage class
furnish() {
  kubectl label --overwrite node "$1" nvidia.com/gpu.product=NVIDIA-H200 >/dev/null
  kubectl patch node "$1" --subresource=status --type=json >/dev/null -p '[
    {"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": "8"},
    {"op": "add", "path": "/status/allocatable/nvidia.com~1gpu", "value": "8"}]'
  kubectl apply -f - >/dev/null <<YAML
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: local
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: $2
volumeBindingMode: $3
YAML
  kubectl wait --for=create serviceaccount/default --timeout=30s >/dev/null
}
