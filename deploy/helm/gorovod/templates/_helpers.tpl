{{/* What gorovod k8s render prints, by the same values. Tests compare the two. */}}

{{- define "gorovod.name" -}}
{{- .Values.name | default .Release.Name -}}
{{- end }}

{{- define "gorovod.secretName" -}}
{{- .Values.secret | default (include "gorovod.name" .) -}}
{{- end }}

{{- define "gorovod.metadata" -}}
name: {{ include "gorovod.name" . }}{{ .suffix }}
namespace: {{ .Release.Namespace }}
labels:
  {{- include "gorovod.instance" . | nindent 2 }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
  {{- with .Values.labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* The labels of the job's pods. */}}
{{- define "gorovod.instance" -}}
app.kubernetes.io/instance: {{ include "gorovod.name" . }}
app.kubernetes.io/name: gorovod
{{- end }}

{{/* The labels that choose the job's pods and no others: a TrainJob's have what the JobSet gives them. */}}
{{- define "gorovod.pods" -}}
{{- if eq .Values.kind "trainjob" -}}
jobset.sigs.k8s.io/jobset-name: {{ include "gorovod.name" . }}
{{- else -}}
{{ include "gorovod.instance" . }}
{{- end }}
{{- end }}

{{- define "gorovod.podAnnotations" -}}
{{- with .Values.podAnnotations -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The fields that all pods have. */}}
{{- define "gorovod.pod" -}}
enableServiceLinks: false
automountServiceAccountToken: false
{{- if .Values.grace }}
terminationGracePeriodSeconds: {{ int .Values.grace }}
{{- end }}
{{- with .Values.pod }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The words of a command. Kubernetes would replace $(NAME) and $$. */}}
{{- define "gorovod.command" -}}
- horovodrun
{{- range .options }}
- {{ toJson . }}
{{- end }}
{{- with .Values.metricsPort }}
- --metrics-port
- ":{{ int . }}"
{{- end }}
{{- range .Values.command }}
- {{ replace "$" "$$" . | toJson }}
{{- end }}
{{- end }}

{{/* The folder with the certificate of the page of metrics. */}}
{{- define "gorovod.pageCertificate" -}}
{{- if and .Values.metricsPort .Values.metricsTLS -}}/etc/gorovod-tls
{{- else if and .Values.metricsPort .Values.tls -}}/etc/gorovod-certificate
{{- end }}
{{- end }}

{{- define "gorovod.env" -}}
{{- if .Values.metricsPort }}
- name: GOROVOD_METRICS_TOKEN_FILE
  value: /etc/gorovod/metrics-token
{{- end }}
{{- with include "gorovod.pageCertificate" . }}
- name: GOROVOD_METRICS_CERT
  value: {{ . }}/tls.crt
- name: GOROVOD_METRICS_KEY
  value: {{ . }}/tls.key
{{- end }}
{{- if .Values.tls }}
- name: GOROVOD_TLS_CERT
  value: /etc/gorovod-certificate/tls.crt
- name: GOROVOD_TLS_KEY
  value: /etc/gorovod-certificate/tls.key
- name: GOROVOD_TLS_CA
  value: /etc/gorovod-certificate/ca.crt
{{- end }}
{{- if .Values.checkpoints }}
- name: GOROVOD_CHECKPOINT_DIR
  value: /checkpoints
{{- end }}
{{- range $name, $value := .Values.env }}
{{- if kindIs "float64" $value }}{{- if eq (floor $value) $value }}{{ $value = int64 $value }}{{ end }}{{ end }}
- name: {{ $name }}
  value: {{ toString $value | replace "$" "$$" | toJson }}
{{- end }}
{{- end }}

{{- define "gorovod.limits" -}}
{{- if .Values.cpu }}
cpu: {{ toString .Values.cpu | quote }}
{{- end }}
{{- if .Values.memory }}
memory: {{ .Values.memory | quote }}
{{- end }}
{{- if .Values.gpus }}
nvidia.com/gpu: {{ int .Values.gpus | quote }}
{{- end }}
{{- end }}

{{- define "gorovod.confined" -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* The port of the metrics, of a container that may have the page. */}}
{{- define "gorovod.metricsPort" -}}
{{- with .Values.metricsPort -}}
- name: metrics
  containerPort: {{ int . }}
{{- end }}
{{- end }}

{{/* What the processes see and their launcher: keys if .key is set, /dev/shm for data loaders and NCCL unless .alone
is. */}}
{{- define "gorovod.mounts" -}}
{{- if not .alone }}
- name: shm
  mountPath: /dev/shm
{{- end }}
{{- if .key }}
- name: secret
  mountPath: /etc/gorovod
  readOnly: true
{{- if .Values.metricsTLS }}
- name: tls
  mountPath: /etc/gorovod-tls
  readOnly: true
{{- end }}
{{- end }}
{{- if .Values.tls }}
- name: certificate
  mountPath: /etc/gorovod-certificate
  readOnly: true
{{- end }}
{{- if .Values.checkpoints }}
- name: checkpoints
  mountPath: /checkpoints
{{- end }}
{{- end }}

{{- define "gorovod.volumes" -}}
{{- if not .alone }}
- name: shm
  emptyDir:
    medium: Memory
{{- end }}
{{- if .key }}
- name: secret
  secret:
    secretName: {{ include "gorovod.secretName" . }}
{{- if .Values.metricsTLS }}
- name: tls
  secret:
    secretName: {{ .Values.metricsTLS }}
{{- end }}
{{- end }}
{{- if .Values.tls }}
- name: certificate
  secret:
    secretName: {{ .Values.tls }}
{{- end }}
{{- if .Values.checkpoints }}
- name: checkpoints
  persistentVolumeClaim:
    claimName: {{ .Values.checkpoints }}
{{- end }}
{{- end }}

{{/* Processes in a pod, for a kind that cannot leave that to horovodrun. */}}
{{- define "gorovod.slots" -}}
{{- $cpu := toString .Values.cpu -}}
{{- if .Values.slots }}{{ int .Values.slots }}
{{- else if .Values.gpus }}{{ int .Values.gpus }}
{{- else if hasSuffix "m" $cpu }}{{ max 1 (div (trimSuffix "m" $cpu | int) 1000) }}
{{- else }}{{ max 1 (splitList "." $cpu | first | int) }}
{{- end }}
{{- end }}
