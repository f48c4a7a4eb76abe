#!/usr/bin/env bash
# Consul: a lock's LockIndex restarts at 1, so it is no fencing token.
#
# Expected: LockIndex, the documented part of a lock's sequencer, rises with each grant.
# Seen:     the counter is part of the key. `consul lock` deletes its key after each run, so each holder has LockIndex 1. So does the
#           next holder after a session whose behavior is delete. With the behavior release, it rises. ModifyIndex rises with each
#           grant, but also with each write of a holder.
# Package:  Debian 11's consul 1.8.7
# Date:     2026-11-29
. "$(dirname "$0")/lib.bash"
need curl curl
port=$(port)
consul_server "$port"
seen="consul lock:"
for _ in 1 2 3; do seen+=" $("$consul" lock job "$consul kv get -detailed job/.lock" | awk '$1 == "LockIndex" {print $2}')"; done
for behavior in delete release; do
	seen+=$'\n'"sessions with the behavior $behavior:"
	last=0 rises=true
	for _ in 1 2 3; do
		session=$(curl -s -X PUT "http://$CONSUL_HTTP_ADDR/v1/session/create" -d "{\"Behavior\": \"$behavior\", \"LockDelay\": \"1ms\"}" | tr -d '"{}' | cut -d: -f2)
		curl -s -X PUT "http://$CONSUL_HTTP_ADDR/v1/kv/$behavior?acquire=$session" -d x >/dev/null
		read -r index modified < <("$consul" kv get -detailed "$behavior" | awk '/^(LockIndex|ModifyIndex)/ {print $2}' | paste -sd' ')
		seen+=" $index"
		[ "$modified" -gt "$last" ] || rises=false
		last=$modified
		curl -s -X PUT "http://$CONSUL_HTTP_ADDR/v1/session/destroy/$session" >/dev/null
		sleep 0.1 # the delay
	done
	seen+=", ModifyIndex rises: $rises"
done
recorded "$seen" <<'END'
consul lock: 1 1 1
sessions with the behavior delete: 1 1 1, ModifyIndex rises: true
sessions with the behavior release: 1 2 3, ModifyIndex rises: true
END
