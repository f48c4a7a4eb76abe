#!/usr/bin/env bash
# A subscriber at a replica hears the end of a lock's TTL as del, as if the holder had released it.
#
# Expected: the replica publishes expired, as the master does, or nothing until its own clock says so.
# Seen:     the master publishes expired, and sends a deletion. The replica executes that, and publishes del on all three
#           servers. So one who waits at a replica cannot tell an orderly release from a holder that died.
# Package:  Debian's redis-server 7.0.15, redis-tools 8.6.3, valkey-tools 9.1.2
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"

run() {
	local master replica p
	master=$(port) replica=$(port)
	start "$master" --notify-keyspace-events KEA --repl-diskless-sync-delay 0
	start "$replica" --notify-keyspace-events KEA --replicaof 127.0.0.1 "$master"
	until_true linked "$replica"
	for p in "$master" "$replica"; do
		on "$p" PSUBSCRIBE '__keyspace@0__:*' >"$work/heard$p" 2>/dev/null &
		ends $!
		disown
		until_true grep -q psubscribe "$work/heard$p"
	done
	on "$master" SET lock holder PX 100 >/dev/null
	until_true absent "$master"
	on "$master" SET mark 1 >/dev/null
	for p in "$master" "$replica"; do until_true grep -q mark "$work/heard$p"; done
	echo "$1, master: $(events "$master")"
	echo "$1, replica: $(events "$replica")"
}
linked() { on "$1" INFO replication | tr -d '\r' | grep -qx master_link_status:up; }
absent() { on "$1" DBSIZE | grep -qx 0; }
events() { grep -A1 ':lock$' "$work/heard$1" | grep -vE '^--|lock$' | paste -sd' '; }

seen=
for version in "redis 7.0.15" "redis 8.6.3" "valkey 9.1.2"; do
	server $version
	seen+=$(run "$version")$'\n'
done
recorded "${seen%$'\n'}" <<'END'
redis 7.0.15, master: set expire expired
redis 7.0.15, replica: set expire del
redis 8.6.3, master: set expire expired
redis 8.6.3, replica: set expire del
valkey 9.1.2, master: set expire expired
valkey 9.1.2, replica: set expire del
END
