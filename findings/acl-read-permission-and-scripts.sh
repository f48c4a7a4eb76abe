#!/usr/bin/env bash
# A user with the permission to read a lock cannot read it by a script that declares the key.
#
# Expected: with the key permission %R~, a script that reads passes; at least one that promises no-writes.
# Seen:     EVAL declares its keys as written, whatever the script does: NOPERM, with flags=no-writes, too. EVAL_RO passes. So does
#           the same EVAL with the name in the text, or as an argument: then the GET within it is checked, as a read.
# Package:  Debian's redis-server 7.0.15
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"
server redis 7.0.15
port=$(port)
start "$port"
on "$port" ACL SETUSER watcher on nopass '%R~lock' +@all >/dev/null
on "$port" SET lock holder >/dev/null
watcher() { printf '%s\n' 'AUTH watcher any' "$1" | on "$port" 2>/dev/null | sed -n '2s/NOPERM.*/NOPERM/;2p'; }
recorded "GET: $(watcher 'GET lock')
EVAL, declared: $(watcher "EVAL \"return redis.call('GET', KEYS[1])\" 1 lock")
EVAL, declared, no-writes: $(watcher "EVAL \"#!lua flags=no-writes\nreturn redis.call('GET', KEYS[1])\" 1 lock")
EVAL_RO, declared: $(watcher "EVAL_RO \"return redis.call('GET', KEYS[1])\" 1 lock")
EVAL, as an argument: $(watcher "EVAL \"return redis.call('GET', ARGV[1])\" 0 lock")" <<'END'
GET: holder
EVAL, declared: NOPERM
EVAL, declared, no-writes: NOPERM
EVAL_RO, declared: holder
EVAL, as an argument: holder
END
