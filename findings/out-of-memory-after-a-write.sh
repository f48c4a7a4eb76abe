#!/usr/bin/env bash
# A script may fill a server that is out of memory, if it tries any harmless write first.
#
# Expected: a server above maxmemory with noeviction refuses SET and INCR in a script, wherever they stand.
# Seen:     it refuses them only until the script's first write. A DEL of a key that does not exist counts as that write. So
#           two scripts with the same commands, in another order, have other outcomes: a lock whose script begins with a DEL or
#           PEXPIRE is granted on the full server, and one that begins with its SET is not.
# Package:  Debian's redis-server 7.0.15
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"
server redis 7.0.15
port=$(port)
start "$port" --maxmemory-policy noeviction
on "$port" CONFIG SET maxmemory 1 >/dev/null
code() { "$@" 2>&1 | grep -oE '^(OOM|OK|[0-9]+)'; }
recorded "$(
	echo "SET: $(code on "$port" EVAL "return redis.call('SET', KEYS[1], 'x')" 1 a)"
	echo "GET, SET: $(code on "$port" EVAL "redis.call('GET', KEYS[1]) return redis.call('SET', KEYS[1], 'x')" 1 a)"
	echo "PUBLISH, SET: $(code on "$port" EVAL "redis.call('PUBLISH', 'c', 'm') return redis.call('SET', KEYS[1], 'x')" 1 a)"
	echo "DEL of an absent key, SET: $(code on "$port" EVAL "redis.call('DEL', KEYS[2]) return redis.call('SET', KEYS[1], 'x')" 2 b absent)"
	echo "PEXPIRE of an absent key, INCR: $(code on "$port" EVAL "redis.call('PEXPIRE', KEYS[2], 1) return redis.call('INCR', KEYS[1])" 2 c absent)"
	echo "keys: $(on "$port" DBSIZE)"
)" <<'END'
SET: OOM
GET, SET: OOM
PUBLISH, SET: OOM
DEL of an absent key, SET: OK
PEXPIRE of an absent key, INCR: 1
keys: 2
END
