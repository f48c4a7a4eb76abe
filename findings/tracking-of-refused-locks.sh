#!/usr/bin/env bash
# A caching client that reads the holder of a lock by SET NX GET does not hear of the release.
#
# Expected: CLIENT TRACKING covers each reply that shows a value: one can wait for a lock with the call that was refused.
# Seen:     SET is a write, and GETEX, too: their replies are not remembered, so no invalidation comes. After GET, every renewal
#           invalidates, as does a key of the same name in another database. SWAPDB, which changes the value, does not.
# Package:  Debian's redis-server 7.0.15
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"
server redis 7.0.15
port=$(port)
start "$port"

heard() { # what the client reads, then what another one does
	local answers='' line
	on "$port" FLUSHALL >/dev/null
	on "$port" SET lock holder PX 60000 >/dev/null
	exec 3<>"/dev/tcp/127.0.0.1/$port"
	printf 'HELLO 3\r\nCLIENT TRACKING ON\r\n%s\r\nPING read\r\n' "$1" >&3
	while read -r line <&3; do [[ $line != read* ]] || break; done
	printf '%s\n' "${@:2}" | on "$port" >/dev/null
	printf 'PING end\r\n' >&3
	while read -r line <&3; do
		[[ $line != end* ]] || break
		answers+=$line
	done
	exec 3>&-
	[[ $answers = *invalidate* ]] && echo told || echo "not told"
}

recorded "GET, then the release: $(heard 'GET lock' 'DEL lock')
SET NX GET, then the release: $(heard 'SET lock mine NX GET' 'DEL lock')
GETEX, then the release: $(heard 'GETEX lock' 'DEL lock')
GET, then a renewal: $(heard 'GET lock' 'PEXPIRE lock 60000')
GET, then the same name in database 1: $(heard 'GET lock' 'SELECT 1' 'SET lock other')
GET, then SWAPDB: $(heard 'GET lock' 'SWAPDB 0 1')" <<'END'
GET, then the release: told
SET NX GET, then the release: not told
GETEX, then the release: not told
GET, then a renewal: told
GET, then the same name in database 1: told
GET, then SWAPDB: not told
END
