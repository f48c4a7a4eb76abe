#!/usr/bin/env bash
# A cluster's replica runs a lock script of a READONLY connection itself, if the script has no shebang line.
#
# Expected: EVAL may write, so a replica redirects it to the master with MOVED, as it does with SET.
# Seen:     after READONLY, a plain EVAL starts on the replica, and its SET fails there with an error that names no node: READONLY
#           on Redis, and on Valkey "ERR Attempted to access a non local key". With
#           "#!lua" as its first line, the same script is answered with MOVED. FCALL is, too.
# Package:  Debian's redis-server 7.0.15 and valkey-tools 9.1.2
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"

linked() { on "$1" INFO replication | tr -d '\r' | grep -qx master_link_status:up && on "$1" --raw DBSIZE | grep -qx 1; }

run() {
	local master replica p
	master=$(port) replica=$(port)
	for p in "$master" "$replica"; do start "$p" --cluster-enabled yes --repl-diskless-sync-delay 0; done
	cluster "$master" "$replica"
	on "$replica" CLUSTER REPLICATE "$(on "$master" CLUSTER MYID)" >/dev/null
	on "$master" SET key value >/dev/null
	on "$master" FUNCTION LOAD "#!lua name=locks
redis.register_function('take', function(keys) return redis.call('SET', keys[1], 'mine') end)" >/dev/null
	until_true linked "$replica"
	readonly_() { printf '%s\n' READONLY "$1" | on "$replica" 2>&1 | sed -n 2p | grep -oE '^(MOVED|READONLY|ERR [A-Za-z ]*key|[a-z]+)'; }
	echo "$1, SET: $(readonly_ 'SET key mine')"
	echo "$1, EVAL of GET: $(readonly_ "EVAL \"return redis.call('GET', KEYS[1])\" 1 key")"
	echo "$1, EVAL of SET: $(readonly_ "EVAL \"return redis.call('SET', KEYS[1], 'mine')\" 1 key")"
	echo "$1, EVAL of SET with #!lua: $(readonly_ "EVAL \"#!lua\nreturn redis.call('SET', KEYS[1], 'mine')\" 1 key")"
	echo "$1, FCALL of SET: $(readonly_ 'FCALL take 1 key')"
}

server redis 7.0.15
seen=$(run redis)
server valkey 9.1.2
seen+=$'\n'$(run valkey)
recorded "$seen" <<'END'
redis, SET: MOVED
redis, EVAL of GET: value
redis, EVAL of SET: READONLY
redis, EVAL of SET with #!lua: MOVED
redis, FCALL of SET: MOVED
valkey, SET: MOVED
valkey, EVAL of GET: value
valkey, EVAL of SET: ERR Attempted to access a non local key
valkey, EVAL of SET with #!lua: MOVED
valkey, FCALL of SET: MOVED
END
