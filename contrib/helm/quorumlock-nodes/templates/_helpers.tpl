{{- define "name" -}}
{{- /* The name is also that of Services. Kubernetes labels pods with it and a hash, and a label has at most 63 characters. */}}
{{- if not (regexMatch "^[a-z][a-z0-9-]{0,46}$" .Release.Name) }}
{{- fail (printf "the release's name %s: use a letter, and then at most 46 letters, digits and hyphens" .Release.Name) }}
{{- end -}}
{{ .Release.Name }}-node
{{- end }}

{{/* The labels that select pods. They never change, and pods have no others: so no upgrade restarts pods because of a label. */}}
{{- define "selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "labels" -}}
{{ include "selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The lines of redis.conf; docs/nodes.md says why. */}}
{{- define "redis.conf" -}}
{{- if .Values.tlsSecret -}}
port 0
tls-port 6379
tls-cert-file /etc/quorumlock-tls/tls.crt
tls-key-file /etc/quorumlock-tls/tls.key
tls-auth-clients no
{{- else -}}
port 6379
{{- end }}
dir /data
aclfile /etc/quorumlock-users/users.acl
appendonly yes
appendfsync always
no-appendfsync-on-rewrite no
save ""
maxmemory {{ div (mul 3 .Values.memoryMi) 4 }}mb
maxmemory-policy noeviction
{{- end }}

{{/* The users. The user of the probe may only ping. */}}
{{- define "users.acl" -}}
user default off
user probe on nopass resetkeys resetchannels -@all +ping
{{- $lines := splitList "\n" (trim .Values.users) }}
{{- range $i, $line := $lines }}
{{- $n := add1 $i }}
{{- if not (regexMatch "^user [A-Za-z0-9_-]+ reset on #[0-9a-f]{64} " $line) }}
{{- fail (printf "users: line %d is not from quorumlock acl --password-file FILE: use its output" $n) }}
{{- else if regexMatch "^user (default|probe) " $line }}
{{- fail (printf "users: line %d: the users default and probe are the chart's: use quorumlock acl --user NAME" $n) }}
{{- else if and $.Values.restartGuardSeconds (contains " ~redisson_lock_token:" $line) (not (contains " ~quorumlock_age " $line)) }}
{{- fail (printf "users: line %d lacks ~quorumlock_age, and restartGuardSeconds is %d: use quorumlock acl --restart-guard" $n (int $.Values.restartGuardSeconds)) }}
{{- end }}
{{ $line }}
{{- end }}
{{- end }}
