#!/usr/bin/env bash
# A promoted server forgets that it was a replica, once nobody has replicated from it for repl-backlog-ttl.
#
# Expected: INFO's master_replid2 is the history that a replica followed before its promotion, so a program can tell a promoted
#           server from one that was always a master, for as long as the process lives.
# Seen:     when the backlog is freed (repl-backlog-ttl, an hour by default), Redis and Valkey choose a new master_replid and clear
#           master_replid2 to zeros: what a master shows that never was a replica. The run_id is the same.
# Package:  Debian's redis-server 7.0.15, redis-tools 8.6.3 and valkey-tools 9.1.2
# Date:     2026-11-29
. "$(dirname "$0")/lib.bash"

field() { on "$1" INFO "$2" | tr -d '\r' | sed -n "s/^$3://p"; }
linked() { [ "$(field "$1" replication master_link_status)" = up ]; }
zeros() { [ -z "$(field "$1" replication master_replid2 | tr -d 0)" ]; }
known() { if zeros "$1"; then echo no; else echo yes; fi; }

run() {
	local name=$1 master promoted process id
	master=$(port) promoted=$(port)
	start "$master"
	start "$promoted" --replicaof "127.0.0.1 $master" --repl-backlog-ttl 1
	until_true linked "$promoted"
	on "$promoted" REPLICAOF NO ONE >/dev/null
	process=$(field "$promoted" server run_id) id=$(field "$promoted" replication master_replid)
	echo "$name, known as promoted: $(known "$promoted")"
	until_true zeros "$promoted"
	echo "$name, after repl-backlog-ttl: $(known "$promoted"); the same process: $(
		[ "$(field "$promoted" server run_id)" = "$process" ] && echo yes || echo no
	); the same history: $([ "$(field "$promoted" replication master_replid)" = "$id" ] && echo yes || echo no)"
}

server redis 7.0.15
seen=$(run 'redis 7')
server redis 8.6.3
seen+=$'\n'$(run 'redis 8')
server valkey 9.1.2
seen+=$'\n'$(run valkey)
recorded "$seen" <<'END'
redis 7, known as promoted: yes
redis 7, after repl-backlog-ttl: no; the same process: yes; the same history: no
redis 8, known as promoted: yes
redis 8, after repl-backlog-ttl: no; the same process: yes; the same history: no
valkey, known as promoted: yes
valkey, after repl-backlog-ttl: no; the same process: yes; the same history: no
END
