#!/usr/bin/env bash
# Sentinel: if the master's name follows the master, the sentinel makes the new master a replica of itself.
#
# Expected: the sentinel monitors db, a name that a failover's script moves to the new master, as operators move a virtual address.
#           It compares run IDs, and notices that db and db2 are one server.
# Seen:     after the failover, the sentinel lists the former master as the replica db. That name leads to the new master, which
#           reports the role of a master. The sentinel takes it for the former master, back again, and sends REPLICAOF db2 to db2.
#           The server obeys, and refuses writes from then on. The sentinel reports a healthy master with a healthy replica.
# Package:  Debian's redis-server 7.0.15, redis-tools 8.6.3, valkey-tools 9.1.2
# Date:     2026-11-29
[ "${1:-}" = unshared ] || exec unshare -m "$0" unshared # for an /etc/hosts of its own
. "$(dirname "$0")/lib.bash"
cp /etc/hosts "$work/hosts"
mount --bind "$work/hosts" /etc/hosts || lacks "no permission to mount"

names() { printf '%s\n' "127.0.0.1 localhost" "$1 db" '127.0.0.3 db2' >/etc/hosts; }
at() {
	local host=$1
	shift
	"${cli[@]}" -h "$host" -p "$port" "$@" 2>&1 | tr -d '\r' || true
}
role() { [ "$(at "$1" ROLE | head -n 1)" = "$2" ]; }
ready() { on "$((port + 10000))" SENTINEL REPLICAS group | grep -A1 -x master-link-status | grep -qx ok; }
switched() { on "$((port + 10000))" SENTINEL GET-MASTER-ADDR-BY-NAME group | grep -qx db2; }
patiently() { until_true "$@" 2>/dev/null; }

run() {
	local i
	port=$(port)
	names 127.0.0.2
	for i in 2 3; do
		mkdir "$work/$port-$i"
		"${server[@]}" --port "$port" --bind "127.0.0.$i" --dir "$work/$port-$i" --save '' --repl-diskless-sync-delay 0 \
			$([ $i = 2 ] || echo --replicaof db "$port" --replica-announce-ip db2) >"$work/log$i" 2>&1 &
		ends $!
		disown
		[ $i = 3 ] || pid=$!
	done
	printf '%s\n' "port $((port + 10000))" 'bind 127.0.0.1' "dir $work/$port-2" 'sentinel resolve-hostnames yes' 'sentinel announce-hostnames yes' \
		"sentinel monitor group db $port 1" 'sentinel down-after-milliseconds group 1000' >"$work/$port.conf"
	"${server[@]}" "$work/$port.conf" --sentinel >"$work/sentinel$port" 2>&1 &
	ends $!
	disown
	for i in 1 2 3; do (patiently ready) && break; done # it finds the replica within ten seconds
	ready || lacks "the sentinel does not find the replica"
	kill -KILL "$pid"
	until_true switched
	names 127.0.0.3
	echo "$1: the new master accepts writes: $(at 127.0.0.3 SET lock holder)"
	for i in 1 2 3 4; do (patiently role 127.0.0.3 slave) && break; done
	echo "$1, later: it is a $(at 127.0.0.3 ROLE | head -n 2 | paste -sd' '); a write: $(at 127.0.0.3 SET lock holder | cut -d' ' -f1)"
	echo "$1, the sentinel: $(on "$((port + 10000))" SENTINEL MASTER group | grep -A1 -x -e ip -e flags | grep -v -- -- | paste -sd' '), $(on "$((port + 10000))" SENTINEL REPLICAS group | grep -A1 -x -e ip -e flags | grep -v -- -- | paste -sd' ')"
}

seen=
for version in "redis 7.0.15" "redis 8.6.3" "valkey 9.1.2"; do
	server $version
	seen+=$(run "$version")$'\n'
done
recorded "${seen%$'\n'}" <<'END'
redis 7.0.15: the new master accepts writes: OK
redis 7.0.15, later: it is a slave db2; a write: READONLY
redis 7.0.15, the sentinel: ip db2 flags master, ip db flags slave
redis 8.6.3: the new master accepts writes: OK
redis 8.6.3, later: it is a slave db2; a write: READONLY
redis 8.6.3, the sentinel: ip db2 flags master, ip db flags slave
valkey 9.1.2: the new master accepts writes: OK
valkey 9.1.2, later: it is a slave db2; a write: READONLY
valkey 9.1.2, the sentinel: ip db2 flags master, ip db flags slave
END
