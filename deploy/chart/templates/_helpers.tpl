{{- define "bicycle.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "bicycle.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- $name := include "bicycle.name" . }}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "bicycle.selector" -}}
app.kubernetes.io/name: {{ include "bicycle.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "bicycle.labels" -}}
{{ include "bicycle.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "bicycle.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "bicycle.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name is required if serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "bicycle.image" -}}
{{- with .Values.image }}
{{- if .digest }}
{{- printf "%s@%s" .repository .digest }}
{{- else }}
{{- printf "%s:%s" .repository (default $.Chart.AppVersion .tag) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Host names of requests: of the service in the cluster, of the ingress, and further names. */ -}}
{{- define "bicycle.names" -}}
{{- $name := include "bicycle.fullname" . }}
{{- $inside := printf "%s.%s" $name .Release.Namespace }}
{{- $names := list (printf "%s.svc" $inside) (printf "%s.svc.cluster.local" $inside) $inside $name }}
{{- if .Values.ingress.enabled }}
{{- $names = append $names (printf "%s:%d" (required "ingress.host is required if ingress.enabled is true" .Values.ingress.host) (int .Values.ingress.port)) }}
{{- end }}
{{- toYaml (concat $names .Values.extraNames) }}
{{- end }}

{{- define "bicycle.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* Environment and mounts of the service and of the commands that register its tokens. */ -}}
{{- define "bicycle.homeEnv" -}}
- name: BICYCLE_HOME
  value: /var/lib/bicycle/home
{{- with .Values.database.url }}
- name: BICYCLE_DATABASE
  value: {{ . | quote }}
{{- end }}
{{- if .Values.database.secretName }}
- name: BICYCLE_DATABASE_PASSWORD
  value: {{ printf "file:/run/secrets/bicycle/database/%s" .Values.database.secretKey | quote }}
{{- end }}
{{- end }}

{{- define "bicycle.homeMounts" -}}
- name: home
  mountPath: /var/lib/bicycle
- name: tmp
  mountPath: /tmp
{{- if .Values.database.secretName }}
- name: database
  mountPath: /run/secrets/bicycle/database
  readOnly: true
{{- end }}
{{- end }}
