# Shared by the findings: a temporary folder, pinned packages, servers on loopback, and the verdict.
# Source it; it is no finding. Status 0: as recorded; 1: changed; 2: the machine lacks something.
set -euo pipefail
export LC_ALL=C GOWORK=off GOFLAGS=-mod=mod
work=$(mktemp -d)

# ends has process $1 killed at the end of the finding, with signal $2 (KILL). A file has the list: subshells start servers, too.
ends() { echo "$1 ${2:-KILL}" >>"$work/processes"; }

cleanup() {
	local status=$? pid signal i
	touch "$work/processes"
	while read -r pid signal; do
		kill -CONT "$pid" 2>/dev/null || true
		kill "-$signal" "$pid" 2>/dev/null || true
	done <"$work/processes"
	while read -r pid signal; do
		for ((i = 0; i < 40; i++)); do
			kill -0 "$pid" 2>/dev/null || break
			sleep 0.05
		done
	done <"$work/processes"
	rm -rf "$work"
	exit "$status"
}
trap cleanup EXIT
trap 'exit 2' INT TERM

# lacks ends the finding with 2: it says nothing about the behaviour.
lacks() {
	echo "cannot run here: $*" >&2
	exit 2
}

need() { command -v "$1" >/dev/null || lacks "$1 is not installed (Debian: apt-get install $2)"; }

# package checks that Debian's package $1 is installed with the upstream version $2.
package() {
	local version
	need dpkg-query dpkg
	version=$(dpkg-query -W -f '${Version}' "$1" 2>/dev/null) || lacks "the package $1 is not installed (apt-get install $1)"
	version=${version#*:}
	[ "${version%%[-+~]*}" = "$2" ] || lacks "$1 has version $version, want $2"
}

# port prints a free port of loopback that it has not printed before; its tenthousandth neighbour is free, too.
port() {
	local p
	while :; do
		p=$((RANDOM % 8000 + 12000))
		mkdir "$work/port$p" 2>/dev/null || continue
		(exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null && continue
		(exec 3<>"/dev/tcp/127.0.0.1/$((p + 10000))") 2>/dev/null && continue
		echo "$p"
		return
	done
}

# until_true runs a command until it succeeds, for ten seconds.
until_true() {
	local i
	for ((i = 0; i < 200; i++)); do
		if "$@" >/dev/null 2>&1; then return 0; fi
		sleep 0.05
	done
	lacks "still not true after 10 s: $*"
}

# unpacked puts packages of Debian's suites $1 into the folder $2, with all that they depend on, and leaves the machine's own
# packages alone. $3 is the upstream version of the first package. It sets $loader to the command before a program of the folder.
unpacked() {
	local suites=$1 root=$2 version=$3 package=$4 mirror got suite get
	shift 4
	need apt-get apt
	mkdir -p "$root/lists/partial" "$root/archives/partial"
	: >"$root/status"
	read -r mirror < <(apt-get indextargets --format '$(REPO_URI)' 'Label: Debian' 'Created-By: Packages') || lacks "no Debian mirror is known to apt"
	for suite in $suites; do
		echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main"
	done >"$root/sources"
	get=(-qq -o Dir::Etc::SourceList="$root/sources" -o Dir::Etc::SourceParts=/dev/null -o Dir::State::Lists="$root/lists"
		-o Dir::State::Status="$root/status" -o Dir::Cache="$root" -o APT::Sandbox::User=root -o Debug::NoLocking=1
		-o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
	apt-get "${get[@]}" update >/dev/null 2>&1 || lacks "apt-get update fails"
	got=$(apt-cache "${get[@]}" madison "$package" | awk '{print $3}' | grep -E "^([0-9]+:)?${version//./\\.}[-+]" | head -n 1) ||
		lacks "Debian's $suites do not have $package $version"
	apt-get "${get[@]}" install -y --no-install-recommends --download-only "$package=$got" "$@" >/dev/null 2>&1 ||
		lacks "the packages of $package $version cannot be downloaded"
	for package in "$root"/archives/*.deb; do dpkg -x "$package" "$root"; done
	loader=("$(find "$root" -name 'ld-linux-x86-64.so.2' -print -quit)"
		--library-path "$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu")
}

# server chooses the server of the finding: redis 7.0.15 is the installed one, and others are unpacked from other suites. It sets
# $server and $cli.
server() {
	local name=$1 version=$2 suites="sid experimental" root=$work/$1$2
	if [ "$name $version" = "redis 7.0.15" ]; then
		need redis-server redis-server
		package redis-server "$version"
		server=(redis-server) cli=(redis-cli)
		return
	fi
	if [ "$version" = 6.0.16 ]; then
		suites=bullseye
		need redis-cli redis-tools
	fi
	unpacked "$suites" "$root" "$version" "$name-tools"
	ln -s "$name-check-rdb" "$root/usr/bin/$name-server"
	server=("${loader[@]}" "$root/usr/bin/$name-server")
	cli=("${loader[@]}" "$root/usr/bin/$name-cli")
	if [ "$version" = 6.0.16 ]; then cli=(redis-cli); fi # its own has no -e
	"${server[@]}" --version | grep -q "v=$version" || lacks "$name $version does not start"
}

# start runs a server on port $1 with the other arguments, waits for its PONG, and sets $pid.
start() {
	local port=$1
	shift
	mkdir -p "$work/data$port"
	"${server[@]}" --port "$port" --bind 127.0.0.1 --dir "$work/data$port" --save '' --appendonly no --daemonize no "$@" >"$work/log$port" 2>&1 &
	pid=$!
	disown
	ends "$pid"
	until_true on "$port" -e PING
}

# on runs a command at the server of a port, with the answers as redis-cli prints them without a terminal.
on() {
	local port=$1
	shift
	"${cli[@]}" -h 127.0.0.1 -p "$port" "$@"
}

# cluster forms a cluster of the servers on the given ports: the first has all slots, the others have none.
cluster() {
	local first=$1 p
	for p; do on "$p" CLUSTER SET-CONFIG-EPOCH "$((p - 10000))" >/dev/null; done
	for p; do [ "$p" = "$first" ] || on "$first" CLUSTER MEET 127.0.0.1 "$p" >/dev/null; done
	on "$first" CLUSTER ADDSLOTS $(seq 0 16383) >/dev/null
	for p; do until_true cluster_ok "$p" $#; done
}
cluster_ok() {
	local nodes
	nodes=$(on "$1" CLUSTER NODES)
	[ "$(grep -c ' connected' <<<"$nodes")" = "$2" ] && ! grep -q handshake <<<"$nodes" && on "$1" CLUSTER INFO | tr -d '\r' | grep -qx cluster_state:ok
}

# as runs a database's program, as the user of its package if we are root: it refuses to run as root.
as() {
	local user=$1
	shift
	if [ "$(id -u)" = 0 ]; then
		exec setpriv --reuid "$user" --regid "$user" --clear-groups "$@"
	fi
	exec "$@"
}

# postgres starts Debian's PostgreSQL 15, without fsync, and sets $postgres to its URL.
postgres() {
	package postgresql-15 "$1"
	local bin=/usr/lib/postgresql/15/bin port dir=$work/postgres
	port=$(port)
	mkdir "$dir"
	if [ "$(id -u)" = 0 ]; then chmod 711 "$work" && chown postgres "$dir"; fi
	(cd / && as postgres "$bin/initdb" -D "$dir/data" -A trust -U postgres) >"$work/initdb" 2>&1 || lacks "initdb fails"
	(cd / && as postgres "$bin/postgres" -D "$dir/data" -p "$port" -c listen_addresses=127.0.0.1 -k "$dir" -c fsync=off) >"$work/postgres.log" 2>&1 &
	disown
	ends $! QUIT
	postgres="postgres://postgres@127.0.0.1:$port/postgres?sslmode=disable"
	until_true "$bin/pg_isready" -h 127.0.0.1 -p "$port"
}

# mariadb starts Debian's MariaDB, and sets $mariadb to the command of a client, which reads statements from stdin.
mariadb() {
	package mariadb-server "$1"
	local port dir=$work/mariadb
	port=$(port)
	mkdir "$dir"
	if [ "$(id -u)" = 0 ]; then chmod 711 "$work" && chown mysql "$dir"; fi
	(cd / && as mysql mariadb-install-db --no-defaults --datadir="$dir/data" --auth-root-authentication-method=normal --skip-test-db) \
		>"$work/install" 2>&1 || lacks "mariadb-install-db fails"
	(cd / && as mysql mariadbd --no-defaults --datadir="$dir/data" --port="$port" --bind-address=127.0.0.1 --socket="$dir/socket" \
		--pid-file="$dir/pid") >"$work/mariadb.log" 2>&1 &
	disown
	ends $! QUIT
	mariadb=(command mariadb --no-defaults -uroot --socket="$dir/socket" -N -f)
	until_true "${mariadb[@]}" -e 'SELECT 1'
}

# zookeeper starts Debian's ZooKeeper on port $1, and sets $pid.
zookeeper() {
	need java default-jre-headless
	package zookeeper 3.8.0
	printf '%s\n' tickTime=200 "dataDir=$work/zookeeper" "clientPort=$1" clientPortAddress=127.0.0.1 admin.enableServer=false >"$work/zoo.cfg"
	java -Xmx128m -cp '/usr/share/java/*' org.apache.zookeeper.server.quorum.QuorumPeerMain "$work/zoo.cfg" >"$work/log" 2>&1 &
	pid=$!
	ends "$pid"
	disown
	until_true zookeeper_ok "$1"
}
zookeeper_ok() { (exec 3<>"/dev/tcp/127.0.0.1/$1" && printf srvr >&3 && timeout 2 cat <&3) | grep -q Mode; }

# etcd_server starts Debian's etcd on the client port $1 and the peer port $2, and sets $pid. Its data stay for a second start.
etcd_server() {
	package etcd-server 3.4.23
	package etcd-client 3.4.23
	etcd --data-dir "$work/etcd" --listen-client-urls "http://127.0.0.1:$1" --advertise-client-urls "http://127.0.0.1:$1" \
		--listen-peer-urls "http://127.0.0.1:$2" --initial-advertise-peer-urls "http://127.0.0.1:$2" \
		--initial-cluster "default=http://127.0.0.1:$2" >>"$work/log" 2>&1 &
	pid=$!
	ends "$pid"
	disown
	export ETCDCTL_API=3 ETCDCTL_ENDPOINTS=127.0.0.1:$1
	until_true etcdctl endpoint health
}

# consul_server starts Debian 11's Consul, with its API on port $1, and sets $pid and $consul. Its data stay for a second start.
consul_server() {
	consul=$work/consul/usr/bin/consul
	[ -e "$consul" ] || unpacked bullseye "$work/consul" 1.8.7 consul
	[ -e "$work/consul.json" ] || cat >"$work/consul.json" <<-END
		{"server": true, "bootstrap_expect": 1, "node_name": "n", "bind_addr": "127.0.0.1", "client_addr": "127.0.0.1",
		 "data_dir": "$work/consul/data", "performance": {"raft_multiplier": 1}, "disable_update_check": true,
		 "ports": {"http": $1, "server": $(port), "serf_lan": $(port), "serf_wan": $(port), "dns": -1, "grpc": -1}}
	END
	"$consul" agent -config-file "$work/consul.json" >>"$work/log" 2>&1 &
	pid=$!
	ends "$pid"
	disown
	export CONSUL_HTTP_ADDR=127.0.0.1:$1
	until_true consul_ok
}
consul_ok() { "$consul" kv put ready now && "$consul" operator raft list-peers | grep -q leader; }

# php_with unpacks the PHP packages $2... of Debian sid, the first of version $1, and sets $php to the command of an interpreter that has
# them, and phpredis.
php_with() {
	local version=$1 root=$work/php extension
	shift
	unpacked sid "$root" "$version" "$@" php-cli php-redis
	# Debian's autoloaders name each other by their installed place.
	find "$root/usr/share/php" -name autoload.php -print0 | xargs -0 sed -i "s|'/usr/share/php/|'$root/usr/share/php/|g"
	php=("${loader[@]}" "$root/usr/bin/php8.4" -n -d include_path="$root/usr/share/php" -d extension_dir="$(dirname "$root"/usr/lib/php/*/redis.so)")
	for extension in igbinary mbstring redis; do
		[ ! -e "$(echo "$root"/usr/lib/php/*/"$extension.so")" ] || php+=(-d extension="$extension")
	done
}

# laravel runs the PHP program on stdin with Laravel's cache, and the server on port $1. The program has the cache's $repository,
# its $store with the prefix "cache:", and $redis.
laravel() {
	php_with 13.31.0 php-illuminate-cache php-illuminate-redis
	cat >"$work/laravel.php" <<-'END'
		<?php
		foreach (['Cache', 'Redis', 'Support'] as $part) { require_once "Illuminate/$part/autoload.php"; }
		$redis = new Illuminate\Redis\RedisManager(null, 'phpredis', ['default' => ['host' => '127.0.0.1', 'port' => (int) $argv[1]]]);
		$store = new Illuminate\Cache\RedisStore($redis, 'cache:');
		$repository = new Illuminate\Cache\Repository($store);
		function say(mixed $value): string { return is_string($value) ? $value : json_encode($value); }
		eval('?>' . stream_get_contents(STDIN));
	END
	timeout 120 "${php[@]}" "$work/laravel.php" "$1" 2>&1
}

# program builds the Go program on stdin with the given modules (PATH@VERSION) as $program.
program() {
	need go golang
	local dir
	dir=$(mktemp -d "$work/goXXXXXX")
	cat >"$dir/main.go"
	(cd "$dir" && go mod init finding && { [ $# -eq 0 ] || go get "$@"; } && go mod tidy) >"$dir/log" 2>&1 || { tail -n 5 "$dir/log" >&2; lacks "the Go modules $* cannot be had"; }
	for module; do
		(cd "$dir" && [ "$(go list -m -f '{{.Version}}' "${module%@*}")" = "${module#*@}" ]) || lacks "Go chooses another version than $module"
	done
	(cd "$dir" && go build -o finding . >>"$dir/log" 2>&1) || { tail -n 5 "$dir/log" >&2; lacks "the program does not build"; }
	program=$dir/finding
}

# recorded compares what was seen, $1, with the recorded text on stdin.
recorded() {
	local want
	want=$(cat)
	printf '%s\n' "$1"
	if [ "$1" = "$want" ]; then
		echo "as recorded"
		exit 0
	fi
	echo "changed; recorded was:"
	printf '%s\n' "$want"
	exit 1
}

# proxy starts a TCP proxy before port $1, and sets $proxy to its address and $faults to a folder: a file "drop" there loses the next
# reply, and its connection; while there is a file "cut", nothing passes.
proxy() {
	local listen
	program <<'END'
package main

import (
	"net"
	"os"
	"time"
)

func main() {
	listen, err := net.Listen("tcp", os.Args[1])
	check(err)
	check(os.Chdir(os.Args[3]))
	for {
		client, err := listen.Accept()
		check(err)
		server, err := net.Dial("tcp", os.Args[2])
		check(err)
		go pass(client, server, false)
		go pass(server, client, true) // the replies
	}
}

func pass(from, to net.Conn, replies bool) {
	defer from.Close()
	defer to.Close()
	b := make([]byte, 1<<16)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		for _, err = os.Stat("cut"); err == nil; _, err = os.Stat("cut") {
			time.Sleep(time.Millisecond)
		}
		if replies && os.Remove("drop") == nil {
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
END
	listen=$(port) faults=$work/faults$listen
	mkdir "$faults"
	proxy=127.0.0.1:$listen
	"$program" "$proxy" "127.0.0.1:$1" "$faults" 2>"$work/log$listen" &
	ends $!
	disown
	until_true reachable "$listen"
}
reachable() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
