#!/usr/bin/env bash
# A sentinel kills a long script that only reads, and starts a failover for it.
#
# Expected: sentinels watch, and change masters. A script that a user runs is the user's.
# Seen:     a server in a script that runs longer than busy-reply-threshold answers a sentinel's PING with BUSY, which counts as
#           no answer. After down-after-milliseconds the sentinel calls the server down, begins a failover, and sends SCRIPT KILL.
#           The caller reads "Script killed by user", though no user did. A script that has written runs on.
# Package:  Debian's redis-server 7.0.15
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"
server redis 7.0.15
master=$(port) sentinel=$(port)
start "$master" --busy-reply-threshold 1000
mkdir "$work/sentinel"
cat >"$work/sentinel/sentinel.conf" <<END
port $sentinel
bind 127.0.0.1
dir $work/sentinel
sentinel monitor name 127.0.0.1 $master 1
sentinel down-after-milliseconds name 1000
END
redis-server "$work/sentinel/sentinel.conf" --sentinel >"$work/sentinel/log" 2>&1 &
ends $!
disown
until_true on "$sentinel" -e PING
sleep 2
seconds() { # runs a script for up to $1 seconds, with a first command
	on "$master" EVAL "$2 local finish = redis.call('TIME')[1] + $1
		while tonumber(redis.call('TIME')[1]) < finish do end
		return 'ran to its end'" 1 key 2>&1 | sed 's/ script: .*//' | head -n 1
}
recorded "a reading script of 8 s: $(seconds 8 "redis.call('GET', KEYS[1])")
a writing script of 5 s: $(seconds 5 "redis.call('SET', KEYS[1], 1)")
the sentinel: $(grep -oE '\+(sdown|odown|try-failover) master' "$work/sentinel/log" | head -n 3 | paste -sd, | sed 's/,/, /g')" <<'END'
a reading script of 8 s: ERR Script killed by user with SCRIPT KILL...
a writing script of 5 s: ran to its end
the sentinel: +sdown master, +odown master, +try-failover master
END
