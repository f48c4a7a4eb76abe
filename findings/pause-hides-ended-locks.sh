#!/usr/bin/env bash
# During CLIENT PAUSE WRITE, a lock ends for readers, but neither for waiters nor for scripts that ask.
#
# Expected: the pause stops writes. Time goes on: locks end, and those who wait for expired events hear so.
# Seen:     GET answers nil at once, but expired is published only after the pause, and the key still counts in DBSIZE. An EVAL that
#           only reads waits, too, like a write; EVAL_RO and an EVAL with flags=no-writes are answered at once.
# Package:  Debian's redis-server 7.0.15
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"
server redis 7.0.15
port=$(port)
start "$port" --notify-keyspace-events KEA
on "$port" PSUBSCRIBE '__keyevent@0__:expired' >"$work/heard" 2>/dev/null &
ends $!
disown
until_true grep -q psubscribe "$work/heard"
expired() { grep -q lock "$work/heard" && echo published || echo "not published"; }
at_once() { timeout 5 "${cli[@]}" -h 127.0.0.1 -p "$port" "$@" >/dev/null && echo "at once" || echo "held back"; }

on "$port" SET lock holder PX 300 >/dev/null
on "$port" CLIENT PAUSE 30000 WRITE >/dev/null
sleep 1
seen="GET: $(on "$port" -e GET lock | sed 's/^$/nil/'), DBSIZE: $(on "$port" DBSIZE), expired: $(expired)
EVAL of EXISTS: $(at_once EVAL "return redis.call('EXISTS', KEYS[1])" 1 lock)
EVAL of EXISTS, no-writes: $(at_once EVAL "#!lua flags=no-writes
return redis.call('EXISTS', KEYS[1])" 1 lock)
EVAL_RO of EXISTS: $(at_once EVAL_RO "return redis.call('EXISTS', KEYS[1])" 1 lock)"
on "$port" CLIENT UNPAUSE >/dev/null
until_true grep -q lock "$work/heard"
recorded "$seen
after the pause, expired: $(expired)" <<'END'
GET: nil, DBSIZE: 1, expired: not published
EVAL of EXISTS: held back
EVAL of EXISTS, no-writes: at once
EVAL_RO of EXISTS: at once
after the pause, expired: published
END
