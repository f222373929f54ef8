{{/* Names of the objects. */}}
{{- define "greendot.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "greendot.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "greendot.labels" -}}
{{ include "greendot.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "greendot.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "greendot.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "greendot.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{/* A setting as the value of an environment variable. Helm reads every number as a float: 1000000 must not become 1e+06. */}}
{{- define "greendot.value" -}}
{{- if kindIs "slice" . -}}
{{- join "," . -}}
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- int64 . -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{/* Environment of every container. */}}
{{- define "greendot.env" -}}
{{- range $section, $of := .Values.settings }}
{{- range $key, $value := $of }}
- name: GREENDOT_{{ upper $section }}_{{ upper $key }}
  value: {{ include "greendot.value" $value | quote }}
{{- end }}
{{- end }}
- name: GREENDOT_SERVER_DATA_DIR
  value: /var/lib/greendot
{{- end -}}

{{- define "greendot.secretName" -}}
{{- default (include "greendot.fullname" .) .Values.secret.existing -}}
{{- end -}}

{{- define "greendot.port" -}}
{{- dig "server" "port" 8000 .Values.settings -}}
{{- end -}}

{{/* Port of the metrics; 0: the server's port. */}}
{{- define "greendot.metricsPort" -}}
{{- dig "metrics" "port" 0 .Values.settings | int -}}
{{- end -}}

{{/* Termination grace period of a pod, in seconds. */}}
{{- define "greendot.graceSeconds" -}}
{{- $drain := dig "server" "drain_s" 20 .Values.settings | ceil | int -}}
{{- $notice := dig "server" "drain_notice_s" 0 .Values.settings | ceil | int -}}
{{- add .Values.drain.noticeSeconds $notice $drain .Values.drain.spareSeconds -}}
{{- end -}}

{{- define "greendot.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "greendot.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Checks of the values. Each failure names the remedy. */}}
{{- define "greendot.check" -}}
{{- if not (or .Values.secret.existing .Values.secret.values) -}}
{{- fail "secret.existing must name a Secret with GREENDOT_AUTH_SECRET (and GREENDOT_ENGINE_URL, GREENDOT_STORE_URL), or secret.values must have them." -}}
{{- end -}}
{{- if and .Values.secret.existing .Values.secret.values -}}
{{- fail "secret.existing and secret.values exclude each other: the chart does not change a Secret that it did not create. Set one of them." -}}
{{- end -}}
{{- if .Values.persistence.enabled -}}
{{- if or .Values.autoscaling.enabled (gt (int .Values.replicas) 1) -}}
{{- fail "persistence is for one node with SQLite. Set replicas to 1 and autoscaling.enabled to false, or use PostgreSQL (GREENDOT_STORE_URL) without persistence." -}}
{{- end -}}
{{- if .Values.migrate.enabled -}}
{{- fail "migrate is for PostgreSQL; SQLite is migrated when the server starts. With persistence set migrate.enabled to false." -}}
{{- end -}}
{{- else if .Values.secret.values -}}
{{- range list "GREENDOT_ENGINE_URL" "GREENDOT_STORE_URL" -}}
{{- if not (hasKey $.Values.secret.values .) -}}
{{- fail (printf "secret.values lacks %s. Nodes without persistence need Redis and PostgreSQL. Add it." .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.secret.values (not (hasKey .Values.secret.values "GREENDOT_AUTH_SECRET")) -}}
{{- fail "secret.values lacks GREENDOT_AUTH_SECRET. Create one with: openssl rand -hex 32" -}}
{{- end -}}
{{- end -}}

{{/* Mounts of a container: the settings file and extraVolumeMounts. */}}
{{- define "greendot.mounts" -}}
{{- if .Values.config }}
- name: config
  mountPath: /etc/greendot
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Volumes of a pod. Arguments: the context, and the name of the Secret with the settings file. */}}
{{- define "greendot.volumes" -}}
{{- $root := index . 0 -}}
{{- if $root.Values.config }}
- name: config
  secret:
    secretName: {{ index . 1 }}
    defaultMode: 0440
{{- end }}
{{- with $root.Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
