#!/usr/bin/env bash
# With appendfsync everysec, a lock made durable by WAITAOF costs a second on Redis, and milliseconds on Valkey.
#
# Expected: the file is synced once a second, so WAITAOF waits half a second on average, on both.
# Seen:     on Redis, one after the other takes a second each. On Valkey, each takes milliseconds, with the same settings: it does
#           not wait for the second. So the choice of the server decides whether everysec is of use to a lock.
# Package:  Debian's redis-tools 8.6.3 and valkey-tools 9.1.2
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"

run() {
	local port begin i answers
	port=$(port)
	start "$port" --appendonly yes --appendfsync everysec
	on "$port" SET lock 0 >/dev/null
	sleep 2
	begin=$(date +%s%N)
	answers=$(for i in 1 2 3 4 5; do printf '%s\n' "SET lock $i" 'WAITAOF 1 0 5000'; done | on "$port" | grep -c '^1$')
	took=$((($(date +%s%N) - begin) / 1000000))
	echo "$1: $answers of 5 durable, $(if [ $took -gt 3500 ]; then echo more than 3.5 s; elif [ $took -lt 2000 ]; then echo less than 2 s; else echo "$took ms"; fi)"
}

server redis 8.6.3
seen=$(run redis)
server valkey 9.1.2
seen+=$'\n'$(run valkey)
recorded "$seen" <<'END'
redis: 5 of 5 durable, more than 3.5 s
valkey: 5 of 5 durable, less than 2 s
END
