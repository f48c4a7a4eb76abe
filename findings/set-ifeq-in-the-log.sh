#!/usr/bin/env bash
# A compare-and-set keeps its condition in the append-only file, unless it has a time to live.
#
# Expected: the effect is logged, as elsewhere: SET without IFEQ, DELEX as DEL.
# Seen:     SET IFEQ with PX is logged without the condition. With KEEPTTL, or without an end, it is logged with IFEQ, so
#           that whoever replays the file compares again, and must know the option. DELEX with a condition is logged as DEL,
#           without one as DELEX. Valkey does the same for SET, and logs a DEL for DELIFEQ.
# Package:  Debian's redis-tools 8.6.3 and valkey-tools 9.1.2
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"

run() { # delete-if-equal
	local port
	port=$(port)
	start "$port" --appendonly yes --aof-use-rdb-preamble no
	on "$port" SET lock a >/dev/null
	on "$port" SET lock b IFEQ a PX 60000 >/dev/null
	on "$port" SET lock c IFEQ b KEEPTTL >/dev/null
	on "$port" SET lock d IFEQ c >/dev/null
	on "$port" "$@" >/dev/null
	if [ "$1" = DELEX ]; then
		on "$port" SET lock e >/dev/null
		on "$port" DELEX lock >/dev/null
	fi
	echo "$1's server logs:"
	cat "$work/data$port"/appendonlydir/*.incr.aof | tr -d '\r' | awk '/^#/ {next} /^\*/ {if (line) print line; line = " "; next} /^\$/ {next} {line = line " " $0} END {print line}' |
		grep -v SELECT | sed -E 's/ [0-9]{13}/ TIME/'
}

server redis 8.6.3
seen=$(run DELEX lock IFEQ d)
server valkey 9.1.2
seen+=$'\n'$(run DELIFEQ lock d)
recorded "$seen" <<'END'
DELEX's server logs:
  SET lock a
  SET lock b PXAT TIME
  SET lock c IFEQ b KEEPTTL
  SET lock d IFEQ c
  DEL lock
  SET lock e
  DELEX lock
DELIFEQ's server logs:
  SET lock a
  SET lock b PXAT TIME
  SET lock c IFEQ b KEEPTTL
  SET lock d IFEQ c
  DEL lock
END
