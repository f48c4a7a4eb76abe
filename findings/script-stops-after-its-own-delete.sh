#!/usr/bin/env bash
# While a slot moves, a script that deletes its key cannot look at the key again: it is stopped, and the delete stays.
#
# Expected: a script has one declared key, which is at the node when the script begins, so it runs to its end. MULTI with the same
#           two commands would fail if anything did.
# Seen:     MULTI answers 1 and 0. The script is stopped at EXISTS with an error about a non local key, on all three servers; its
#           DEL has taken effect. So a release that publishes or counts after its delete does so
#           for every lock but those of the moving slot, and reports an error for a lock that it has released.
# Package:  Debian's redis-server 7.0.15, redis-tools 8.6.3 and valkey-tools 9.1.2
# Date:     2026-11-29
. "$(dirname "$0")/lib.bash"

run() {
	local name=$1 from to p slot
	from=$(port) to=$(port)
	for p in "$from" "$to"; do start "$p" --cluster-enabled yes; done
	cluster "$from" "$to"
	slot=$(on "$from" CLUSTER KEYSLOT '{lock}')
	on "$from" MSET '{lock}1' owner '{lock}2' owner >/dev/null
	on "$to" CLUSTER SETSLOT "$slot" IMPORTING "$(on "$from" CLUSTER MYID)" >/dev/null
	on "$from" CLUSTER SETSLOT "$slot" MIGRATING "$(on "$to" CLUSTER MYID)" >/dev/null
	printf 'MULTI\nDEL {lock}1\nEXISTS {lock}1\nEXEC\n' | on "$from" | tail -n 2 | paste -sd ' ' | sed "s/^/$name, MULTI: /"
	on "$from" EVAL "redis.call('DEL', KEYS[1]) return redis.call('EXISTS', KEYS[1])" 1 '{lock}2' 2>&1 | head -n 1 |
		sed -E "s/^(ERR).*(non local key).*/$name, the script: \1 ... \2/"
	on "$to" CLUSTER SETSLOT "$slot" STABLE >/dev/null
	on "$from" CLUSTER SETSLOT "$slot" STABLE >/dev/null
	echo "$name, the keys then: $(on "$from" EXISTS '{lock}1') and $(on "$from" EXISTS '{lock}2')"
}

server redis 7.0.15
seen=$(run 'redis 7')
server redis 8.6.3
seen+=$'\n'$(run 'redis 8')
server valkey 9.1.2
seen+=$'\n'$(run valkey)
recorded "$seen" <<'END'
redis 7, MULTI: 1 0
redis 7, the script: ERR ... non local key
redis 7, the keys then: 0 and 0
redis 8, MULTI: 1 0
redis 8, the script: ERR ... non local key
redis 8, the keys then: 0 and 0
valkey, MULTI: 1 0
valkey, the script: ERR ... non local key
valkey, the keys then: 0 and 0
END
