#!/usr/bin/env bash
# A lock that is overwritten, by SET or RENAME, ends without an event that says so, even if all classes are on.
#
# Expected: SET over a hash, and RENAME onto a key, delete what was there: del, at least with notify-keyspace-events KEA.
# Seen:     only set and rename_to. Redis 8.6 has events for both cases, overwritten and type_changed, but A, "all", is without
#           them: they need the letters o and c. Valkey 9.1 has no such letters.
# Package:  Debian's redis-server 7.0.15, redis-tools 8.6.3, valkey-tools 9.1.2
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"

run() {
	local port=$1 classes=$2
	if [ "$(on "$port" CONFIG SET notify-keyspace-events "$classes" 2>&1)" != OK ]; then
		echo "refused"
		return
	fi
	on "$port" FLUSHALL >/dev/null
	on "$port" HSET lock owner 1 >/dev/null
	on "$port" SET other 1 >/dev/null
	local heard=$work/heard$port$classes
	on "$port" PSUBSCRIBE '__keyevent@0__:*' >"$heard" 2>/dev/null &
	until_true grep -q psubscribe "$heard"
	on "$port" SET lock text >/dev/null
	on "$port" RENAME other lock >/dev/null
	on "$port" SET mark 1 >/dev/null
	until_true grep -q '^mark' "$heard"
	awk '/^__keyevent@0__:[a-z_]+$/ {event = $0; sub(/.*:/, "", event); getline; if ($0 == "lock") printf " %s", event}' "$heard"
	echo
}

seen=
for version in "redis 7.0.15" "redis 8.6.3" "valkey 9.1.2"; do
	server $version
	port=$(port)
	start "$port"
	seen+="$version, KEA:$(run "$port" KEA)
$version, KEAoc: $(run "$port" KEAoc | sed 's/^ //')
"
done
recorded "${seen%$'\n'}" <<'END'
redis 7.0.15, KEA: set rename_to
redis 7.0.15, KEAoc: refused
redis 8.6.3, KEA: set rename_to
redis 8.6.3, KEAoc: overwritten type_changed set rename_to overwritten
valkey 9.1.2, KEA: set rename_to
valkey 9.1.2, KEAoc: refused
END
