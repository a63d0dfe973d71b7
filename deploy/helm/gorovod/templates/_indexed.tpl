{{/* The specification of the indexed Job, whose pods each run a launcher. */}}
{{- define "gorovod.indexed" -}}
completions: {{ int .Values.nodes }}
parallelism: {{ int .Values.nodes }}
completionMode: Indexed
{{- /* By what starts again after a failure. elastic: that pod; one that was drained, evicted or deleted does not count.
       jobset: all pods, by its controller. job: all pods; if one fails, all do, so a restart costs as many failures. */}}
{{- if .Values.minNodes }}
backoffLimitPerIndex: {{ int .Values.restarts }}
podFailurePolicy:
  rules:
    - action: Ignore
      onPodConditions:
        - type: DisruptionTarget
          status: "True"
    - action: Ignore
      onExitCodes:
        containerName: node
        operator: In
        values: [143]
    - action: FailJob
      onExitCodes:
        containerName: node
        operator: In
        values: [2, 126, 127]
successPolicy:
  rules:
    - succeededIndexes: "0"
{{- else if eq .Values.kind "jobset" }}
backoffLimit: 0
{{- else }}
backoffLimit: {{ mul .Values.restarts .Values.nodes }}
{{- if .Values.restarts }}
podFailurePolicy:
  rules:
    - action: FailJob
      onExitCodes:
        containerName: node
        operator: In
        values: [2, 126, 127]
{{- end }}
{{- end }}
template:
  metadata:
    labels:
      {{- include "gorovod.instance" . | nindent 6 }}
    {{- include "gorovod.podAnnotations" . | nindent 4 }}
  spec:
    subdomain: {{ include "gorovod.name" . }}
    restartPolicy: Never
    {{- include "gorovod.pod" . | nindent 4 }}
    containers:
      - name: node
        image: {{ .Values.image | quote }}
        command:
          {{- include "gorovod.command" . | nindent 10 }}
        env:
          - name: PET_NNODES
            value: "{{ with .Values.minNodes }}{{ int . }}:{{ end }}{{ int .Values.nodes }}"
          {{- if .Values.slots }}
          - name: PET_NPROC_PER_NODE
            value: {{ int .Values.slots | quote }}
          {{- end }}
          - name: GOROVOD_SECRET_FILE
            value: /etc/gorovod/key
          {{- include "gorovod.env" . | nindent 10 }}
        ports:
          - name: meet
            containerPort: 29500
          {{- include "gorovod.metricsPort" . | nindent 10 }}
        {{- with include "gorovod.limits" . }}
        resources:
          limits:
            {{- . | nindent 12 }}
        {{- end }}
        securityContext:
          {{- include "gorovod.confined" . | nindent 10 }}
        volumeMounts:
          {{- include "gorovod.mounts" (merge (dict "key" true) .) | nindent 10 }}
    volumes:
      {{- include "gorovod.volumes" (merge (dict "key" true) .) | nindent 6 }}
{{- end }}
