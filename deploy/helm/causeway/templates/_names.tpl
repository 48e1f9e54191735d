{{- define "causeway.labels" -}}
app.kubernetes.io/name: causeway
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}
