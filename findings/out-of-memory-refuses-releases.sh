#!/usr/bin/env bash
# A server that is out of memory refuses to delete a lock in a transaction, in a function, and in a script with a shebang line.
#
# Expected: a deletion frees memory, so it passes, however it is sent: DEL has no flag deny-oom.
# Seen:     DEL and a plain EVAL of DEL pass. In MULTI, DEL is refused already when it is queued, and EXEC aborts. FCALL and an
#           EVAL that begins with "#!lua" are refused before they start, unless they declare allow-oom. So the locks that
#           fill the server cannot be released that way until they expire.
# Package:  Debian's redis-server 7.0.15
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"
server redis 7.0.15
port=$(port)
start "$port" --maxmemory-policy noeviction
delete="redis.call('DEL', KEYS[1])"
for key in plain eval multi shebang allowed function; do on "$port" SET "$key" owner >/dev/null; done
on "$port" FUNCTION LOAD "#!lua name=locks
redis.register_function('release', function(keys) return redis.call('DEL', keys[1]) end)" >/dev/null
on "$port" CONFIG SET maxmemory 1 >/dev/null
code() { grep -oE '^(OOM|OK|EXECABORT|[0-9]+)' | paste -sd' '; }
recorded "$(
	echo "DEL: $(on "$port" DEL plain 2>&1 | code)"
	echo "EVAL: $(on "$port" EVAL "return $delete" 1 eval 2>&1 | code)"
	echo "MULTI, DEL, EXEC: $(printf '%s\n' MULTI 'DEL multi' EXEC | on "$port" 2>&1 | code)"
	echo "EVAL with #!lua: $(on "$port" EVAL "#!lua
return $delete" 1 shebang 2>&1 | code)"
	echo "EVAL with #!lua flags=allow-oom: $(on "$port" EVAL "#!lua flags=allow-oom
return $delete" 1 allowed 2>&1 | code)"
	echo "FCALL: $(on "$port" FCALL release 1 function 2>&1 | code)"
	echo "still held: $(on "$port" --raw KEYS '*' | sort | paste -sd' ')"
)" <<'END'
DEL: 1
EVAL: 1
MULTI, DEL, EXEC: OK OOM EXECABORT
EVAL with #!lua: OOM
EVAL with #!lua flags=allow-oom: 1
FCALL: OOM
still held: function multi shebang
END
