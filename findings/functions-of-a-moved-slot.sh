#!/usr/bin/env bash
# A slot that moves as a whole brings the library of functions along on Redis 8.6, but not on Valkey 9.1.
#
# Expected: the same on both. Functions belong to a node, not to a slot, so neither server would copy them with a slot.
# Seen:     Redis restores the library at the new node, and FCALL goes on. On Valkey, the first FCALL after the move fails: the
#           lock has moved, and nobody can release it by a function until the library is loaded there. Neither copies
#           cached scripts: EVALSHA fails on both.
# Package:  Debian's redis-tools 8.6.3 and valkey-tools 9.1.2
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"

moved() { on "$1" GET '{a}lock' | grep -qx owner; }

run() {
	local name=$1 from to p sha
	from=$(port) to=$(port)
	for p in "$from" "$to"; do start "$p" --cluster-enabled yes; done
	cluster "$from" "$to"
	on "$from" SET '{a}lock' owner PX 600000 >/dev/null
	on "$from" FUNCTION LOAD "#!lua name=locks
redis.register_function('holder', function(keys) return redis.call('GET', keys[1]) end)" >/dev/null
	sha=$(on "$from" SCRIPT LOAD "return redis.call('GET', KEYS[1])")
	case $name in
	redis) on "$to" CLUSTER MIGRATION IMPORT 15495 15495 >/dev/null ;;
	valkey) on "$from" CLUSTER MIGRATESLOTS SLOTSRANGE 15495 15495 NODE "$(on "$to" CLUSTER MYID)" >/dev/null ;;
	esac
	until_true moved "$to"
	echo "$name, FCALL at the new node: $(on "$to" FCALL holder 1 '{a}lock' 2>&1)"
	echo "$name, EVALSHA at the new node: $(on "$to" EVALSHA "$sha" 1 '{a}lock' 2>&1 | cut -d' ' -f1)"
}

server redis 8.6.3
seen=$(run redis)
server valkey 9.1.2
seen+=$'\n'$(run valkey)
recorded "$seen" <<'END'
redis, FCALL at the new node: owner
redis, EVALSHA at the new node: NOSCRIPT
valkey, FCALL at the new node: ERR Function not found
valkey, EVALSHA at the new node: NOSCRIPT
END
