{{/* Names of objects are fixed, since there is one driver, one webhook and one SPIRE for a cluster. */}}
{{- define "svc-core.validate" -}}
{{- if or (ne .Release.Name "svc-core") (ne .Release.Namespace "svc-system") -}}
{{- fail (printf "the release is svc-core in the namespace svc-system, not %s in %s: helm install svc-core CHART --namespace svc-system" .Release.Name .Release.Namespace) -}}
{{- end -}}
{{- if and .Values.spire.statsd.enabled (not .Values.spire.statsd.address) -}}
{{- fail "spire.statsd.enabled without spire.statsd.address: set the host:port of the server" -}}
{{- end -}}
{{- end -}}

{{/* Labels of an object. Takes root and name. */}}
{{- define "svc-core.labels" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/part-of: svc-core
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end -}}

{{/* Labels of an object for the Prometheus Operator. Takes root and name. */}}
{{- define "svc-core.monitorLabels" -}}
{{- merge (include "svc-core.labels" . | fromYaml) .root.Values.monitoring.labels | toYaml -}}
{{- end -}}

{{/* Labels of pods. An upgrade can change all but app, by which they are selected. */}}
{{- define "svc-core.podLabels" -}}
app: {{ .name }}
{{ include "svc-core.labels" . }}
{{- end -}}

{{/* The name of an image. Takes root and name. */}}
{{- define "svc-core.image" -}}
{{- $image := get .root.Values.images .name -}}
{{- $path := printf "%s/%s" .root.Values.images.registry $image.repository -}}
{{- if $image.digest -}}
{{ printf "%s@%s" $path $image.digest }}
{{- else -}}
{{ printf "%s:%s" $path ($image.tag | default .root.Chart.AppVersion) }}
{{- end -}}
{{- end -}}

{{/* image and imagePullPolicy of a container. Takes root and name. */}}
{{- define "svc-core.pulled" -}}
image: {{ include "svc-core.image" . | quote }}
imagePullPolicy: {{ .root.Values.images.pullPolicy }}
{{- end -}}

{{- define "svc-core.pullSecrets" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The port of an address; empty where the address disables. */}}
{{- define "svc-core.port" -}}
{{- $address := toString . -}}
{{- if not (has $address (list "" "0")) -}}
{{ splitList ":" $address | last }}
{{- end -}}
{{- end -}}

{{/* The telemetry of a part of SPIRE. Takes root and address. */}}
{{- define "svc-core.spireTelemetry" -}}
{{- $port := include "svc-core.port" .address -}}
{{- if .root.Values.spire.statsd.enabled -}}
telemetry { Statsd = [ { address = {{ .root.Values.spire.statsd.address | quote }} } ] }
{{- else if $port -}}
{{- $host := trimSuffix (printf ":%s" $port) .address | trimPrefix "[" | trimSuffix "]" -}}
telemetry { Prometheus { host = {{ $host | default "0.0.0.0" | quote }} port = {{ $port }} } }
{{- end -}}
{{- end -}}

{{/* The port of the metrics of a part of SPIRE; empty where there is none. Takes root and address. */}}
{{- define "svc-core.spirePort" -}}
{{- if not .root.Values.spire.statsd.enabled -}}
{{ include "svc-core.port" .address }}
{{- end -}}
{{- end -}}

{{/* A Service by which the metrics of pods are found. Takes root, name and port. */}}
{{- define "svc-core.metricsService" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}-metrics
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "svc-core.labels" . | nindent 4 }}
    svc.internal/prometheus-scrape: "true"
spec:
  clusterIP: None
  selector: {app: {{ .name }}}
  ports: [{name: prometheus, port: {{ .port }}, targetPort: prometheus}]
{{- end -}}

{{/* The profile restricted of Pod Security, for the pod and for each container. */}}
{{- define "svc-core.podSecurity" -}}
{{- if eq .Values.kubernetesVariant "openshift" -}}
{runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
{{- else -}}
{runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
{{- end -}}
{{- end -}}
{{- define "svc-core.containerSecurity" -}}
{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end -}}

{{/* The rights of the pods of each node on OpenShift, whose rules refuse them otherwise. Takes root and name. */}}
{{- define "svc-core.privilegedAccount" -}}
{{- if eq .root.Values.kubernetesVariant "openshift" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}-privileged
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "svc-core.labels" . | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:openshift:scc:privileged"}
subjects: [{kind: ServiceAccount, name: {{ .name }}, namespace: {{ .root.Release.Namespace }}}]
{{- end -}}
{{- end -}}

{{/* Pods of each node run on all of them, and are not evicted: those with a volume of the driver could not end. */}}
{{- define "svc-core.everyNode" -}}
priorityClassName: system-node-critical
tolerations: [{operator: Exists}]
{{- end -}}
