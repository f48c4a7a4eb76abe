#!/usr/bin/env bash
# What docs/matrix.md says about Redis 6.
#
# Package: Debian 11's redis-tools 6.0.16
# Date:    2026-11-29
. "$(dirname "$0")/../../findings/lib.bash"
server redis 6.0.16
first=$(port) second=$(port)
for port in "$first" "$second"; do start "$port" --cluster-enabled yes; done
cluster "$first" "$second"
said() { on "$@" 2>&1 || true; }
seen="shards: SPUBLISH: $(said "$first" SPUBLISH channel message | sed 's/,.*//')"$'\n'
on "$second" SUBSCRIBE channel >"$work/heard" 2>/dev/null &
ends $!
disown
until_true grep -q subscribe "$work/heard"
on "$first" PUBLISH channel message >/dev/null
until_true grep -qx message "$work/heard"
seen+="messages: one that is published at one server of a cluster is heard at the other: true"$'\n'
seen+="channels: a user who is limited to some: $(said "$first" ACL SETUSER tenant on '&mine:*')"$'\n'
seen+="time: a script that asks for the time, then writes: $(said "$first" EVAL "return redis.call('TIME') and redis.call('SET', KEYS[1], 'x')" 1 key)"
recorded "$seen" <<'END'
shards: SPUBLISH: ERR unknown command `SPUBLISH`
messages: one that is published at one server of a cluster is heard at the other: true
channels: a user who is limited to some: ERR Error in ACL SETUSER modifier '&mine:*': Syntax error
time: a script that asks for the time, then writes: OK
END
