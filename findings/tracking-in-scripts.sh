#!/usr/bin/env bash
# Which keys a caching client hears of after a script depends on the server: those the script declares, or those it reads.
#
# Expected: CLIENT TRACKING remembers what was read, in a script, too; at least, versions agree.
# Seen:     Redis 7.0 remembers the declared KEYS if the script reads anything at all, and never an undeclared key. Redis 8.6 and
#           Valkey 9.1 remember the keys that the script reads, and no others. So a waiter whose script reads a lock by a
#           name built in Lua sleeps through the release on 7.0 only; one that declares a key without reading it, on the newer.
# Package:  Debian's redis-server 7.0.15, redis-tools 8.6.3, valkey-tools 9.1.2
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"

heard() { # script and its arguments, then the key that changes
	local answers='' line
	exec 3<>"/dev/tcp/127.0.0.1/$port"
	printf 'HELLO 3\r\nCLIENT TRACKING ON\r\n%s\r\nPING script\r\n' "$1" >&3
	while read -r line <&3; do [[ $line != script* ]] || break; done
	on "$port" SET "$2" changed >/dev/null
	printf 'PING end\r\n' >&3
	while read -r line <&3; do
		[[ $line != end* ]] || break
		answers+=$line
	done
	exec 3>&-
	[[ $answers = *invalidate* ]] && echo told || echo "not told"
}

seen=
for version in "redis 7.0.15" "redis 8.6.3" "valkey 9.1.2"; do
	server $version
	port=$(port)
	start "$port"
	seen+="$version
declared and read: $(heard "EVAL \"return redis.call('GET', KEYS[1])\" 1 a" a)
read, not declared: $(heard "EVAL \"return redis.call('GET', 'b')\" 0" b)
declared, another one read: $(heard "EVAL \"return redis.call('GET', 'd')\" 1 c" c)
that other one: $(heard "EVAL \"return redis.call('GET', 'f')\" 1 e" f)
"
done
recorded "${seen%$'\n'}" <<'END'
redis 7.0.15
declared and read: told
read, not declared: not told
declared, another one read: told
that other one: not told
redis 8.6.3
declared and read: told
read, not declared: told
declared, another one read: not told
that other one: told
valkey 9.1.2
declared and read: told
read, not declared: told
declared, another one read: not told
that other one: told
END
