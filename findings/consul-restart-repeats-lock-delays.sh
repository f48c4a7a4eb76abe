#!/usr/bin/env bash
# Consul: a restart of the server repeats lock-delays that had ended, for locks that others have held and released since.
#
# Expected: after a lock-delay of 15 s, the lock is free, and stays free over a restart; or a restart forgets the delay.
# Seen:     the delay is not stored. The server sets it when it applies the end of a session. A restart applies the log since the last
#           snapshot again. So each lock that the end of a session released in that time is refused for the whole delay again. Locks
#           that their holders released are free at once.
# Package:  Debian 11's consul 1.8.7
# Date:     2026-11-29
. "$(dirname "$0")/lib.bash"
need curl curl
port=$(port)
consul_server "$port"
session() { curl -s -X PUT "http://$CONSUL_HTTP_ADDR/v1/session/create" -d '{"LockDelay": "15s", "Checks": []}' | tr -d '"{}' | cut -d: -f2; }
kv() { curl -s -X PUT "http://$CONSUL_HTTP_ADDR/v1/kv/$1?$2=$3" -d x; }
granted() { [ "$(kv "$1" acquire "$2")" = true ]; }
ended() { ! kill -0 "$1"; }

holder=$(session) next=$(session)
seen="granted: $(kv lost acquire "$holder"), $(kv orderly acquire "$next"); released: $(kv orderly release "$next")"$'\n'
curl -s -X PUT "http://$CONSUL_HTTP_ADDR/v1/session/destroy/$holder" >/dev/null
seen+="lost, after the end of its session: $(kv lost acquire "$next")"$'\n'
sleep 16
seen+="lost, 16 s later: $(kv lost acquire "$next"); released: $(kv lost release "$next"); again: $(kv lost acquire "$next"), $(kv lost release "$next")"$'\n'
kill "$pid"
until_true ended "$pid"
consul_server "$port"
seen+="after a restart: orderly: $(kv orderly acquire "$next"); lost: $(kv lost acquire "$next")"$'\n'
sleep 6
until_true granted lost "$next"
seen+="lost, 16 s later: true"
recorded "$seen" <<'END'
granted: true, true; released: true
lost, after the end of its session: false
lost, 16 s later: true; released: true; again: true, true
after a restart: orderly: true; lost: false
lost, 16 s later: true
END
