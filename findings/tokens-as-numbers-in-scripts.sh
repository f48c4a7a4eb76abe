#!/usr/bin/env bash
# A script's number gets another text by each way it leaves the script, and another one on another server.
#
# Expected: one number has one text, or at least every digit of a double. A time in microseconds (16 digits) is exact in Lua.
# Seen:     as an argument of redis.call and as the reply, microseconds are whole; joined to a string or by cjson they lose
#           their last digits. A time in nanoseconds is stored as "1.7958984585020001e+18" by 7.0, on which
#           INCR then fails, and in full by Redis 8.6 and Valkey 9.1. 0.1 differs, too: 7.0 stores 0.10000000000000001.
# Package:  Debian's redis-server 7.0.15, redis-tools 8.6.3, valkey-tools 9.1.2
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"

run() {
	local port
	port=$(port)
	start "$port"
	echo "$1:"
	for n in 1795898458502123 1795898458502000000 0.1; do
		on "$port" EVAL "redis.call('SET', KEYS[1], $n)
			return 'argument ' .. redis.call('GET', KEYS[1]) .. ', joined ' .. $n .. ', cjson ' .. cjson.encode($n)" 1 token
		echo "INCR: $(on "$port" INCR token 2>&1 | sed '/^$/d')"
	done
}

seen=
for version in "redis 7.0.15" "redis 8.6.3" "valkey 9.1.2"; do
	server $version
	seen+=$(run "$version")$'\n'
done
recorded "${seen%$'\n'}" <<'END'
redis 7.0.15:
argument 1795898458502123, joined 1.7958984585021e+15, cjson 1.7958984585021e+15
INCR: 1795898458502124
argument 1.7958984585020001e+18, joined 1.795898458502e+18, cjson 1.795898458502e+18
INCR: ERR value is not an integer or out of range
argument 0.10000000000000001, joined 0.1, cjson 0.1
INCR: ERR value is not an integer or out of range
redis 8.6.3:
argument 1795898458502123, joined 1.7958984585021e+15, cjson 1.7958984585021e+15
INCR: 1795898458502124
argument 1795898458502000128, joined 1.795898458502e+18, cjson 1.795898458502e+18
INCR: 1795898458502000129
argument 0.1, joined 0.1, cjson 0.1
INCR: ERR value is not an integer or out of range
valkey 9.1.2:
argument 1795898458502123, joined 1.7958984585021e+15, cjson 1.7958984585021e+15
INCR: 1795898458502124
argument 1795898458502000128, joined 1.795898458502e+18, cjson 1.795898458502e+18
INCR: 1795898458502000129
argument 0.1, joined 0.1, cjson 0.1
INCR: ERR value is not an integer or out of range
END
