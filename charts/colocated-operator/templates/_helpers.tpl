{{- define "colocated-operator.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 53 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 53 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* Name of cluster-wide objects: releases in other namespaces have their own. */}}
{{- define "colocated-operator.clusterName" -}}
{{ printf "%s-%s" .Release.Namespace (include "colocated-operator.name" .) }}
{{- end }}

{{- define "colocated-operator.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "colocated-operator.labels" -}}
{{ include "colocated-operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "colocated-operator.subject" -}}
- kind: ServiceAccount
  name: {{ include "colocated-operator.name" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{/* What the operator does in a namespace whose jobs it runs, and nothing else. */}}
{{- define "colocated-operator.rules" -}}
- apiGroups: [rl.colocated.dev]
  resources: [colocatedrljobs]
  verbs: [get, list, watch]
- apiGroups: [rl.colocated.dev]
  resources: [colocatedrljobs/status]
  verbs: [patch]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [create, delete, get, list, watch]
- apiGroups: [""]
  resources: [pods]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create, delete, get, list]
- apiGroups: [""]
  resources: [services]
  verbs: [create, delete, get]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [create, get]
- apiGroups: [""]
  resources: [events]
  verbs: [create, list]
{{- end }}
