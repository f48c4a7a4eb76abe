#!/usr/bin/env bash
# A slot that moves as a whole announces every held lock as if it were taken anew, at its new node.
#
# Expected: a move of a slot is silent, as CLUSTER SETSLOT with MIGRATE nearly is: keys change their place, not their value.
# Seen:     the new node publishes set and expire for a string; for a hash with a TTL on a field, Redis publishes restore, and
#           Valkey hset, hexpire, hset and expire. The old node, whose keys vanish, publishes nothing: a waiter there hears
#           neither del nor expired.
# Package:  Debian's redis-tools 8.6.3 and valkey-tools 9.1.2
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"

moved() { on "$1" CLUSTER COUNTKEYSINSLOT 15495 | grep -qx 2 && on "$1" GET '{a}lock' | grep -qx owner; }

run() {
	local name=$1 from to p
	from=$(port) to=$(port)
	for p in "$from" "$to"; do start "$p" --cluster-enabled yes --notify-keyspace-events KEA; done
	cluster "$from" "$to"
	on "$from" SET '{a}lock' owner PX 600000 >/dev/null
	on "$from" HSET '{a}held' one 1 two 1 >/dev/null
	on "$from" HPEXPIRE '{a}held' 600000 FIELDS 1 one >/dev/null
	on "$from" PEXPIRE '{a}held' 600000 >/dev/null
	for p in "$from" "$to"; do
		on "$p" PSUBSCRIBE '__keyevent@0__:*' >"$work/heard$p" 2>/dev/null &
		ends $!
		until_true grep -q psubscribe "$work/heard$p"
	done
	case $name in
	redis) on "$to" CLUSTER MIGRATION IMPORT 15495 15495 >/dev/null ;;
	valkey) on "$from" CLUSTER MIGRATESLOTS SLOTSRANGE 15495 15495 NODE "$(on "$to" CLUSTER MYID)" >/dev/null ;;
	esac
	until_true moved "$to"
	# A mark behind the events: what was published before it has been read.
	on "$from" SET '{b}mark' 1 >/dev/null
	on "$to" SET '{a}mark' 1 >/dev/null
	for p in "$from" "$to"; do until_true grep -q mark "$work/heard$p"; done
	echo "$name, the old node: $(events "$from")" | sed "s/; $//"
	echo "$name, the new node: $(events "$to")" | sed "s/; $//"
}
events() {
	local key
	for key in '{a}lock' '{a}held'; do
		awk -v key="$key" '$0 == key {line = line " " event} {event = $0; sub(/.*:/, "", event)} END {printf "%s%s; ", key, line ? line : " -"}' "$work/heard$1"
	done
}

server redis 8.6.3
seen=$(run redis)
server valkey 9.1.2
seen+=$'\n'$(run valkey)
recorded "$seen" <<'END'
redis, the old node: {a}lock -; {a}held -
redis, the new node: {a}lock set expire; {a}held restore
valkey, the old node: {a}lock -; {a}held -
valkey, the new node: {a}lock set expire; {a}held hset hexpire hset expire
END
