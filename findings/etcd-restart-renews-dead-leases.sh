#!/usr/bin/env bash
# A restart of etcd gives every lease its whole TTL again, that of a dead lock holder, too.
#
# Expected: the end of a lease is in the log, as everything of etcd: a lease of 20 s with 10 s left has 10 s left, or fewer,
#           after a restart.
# Seen:     after a restart, the lease starts anew: a lock whose holder died 10 s before is held for nearly 20 s more.
# Package:  Debian's etcd-server and etcd-client 3.4.23
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"
client=$(port) peer=$(port)
left() { etcdctl lease timetolive "$1" | grep -oE 'remaining\([0-9]+' | grep -oE '[0-9]+'; }
etcd_server "$client" "$peer"
lease=$(etcdctl lease grant 20 | awk '{print $2}')
etcdctl put --lease="$lease" lock holder >/dev/null
sleep 10
before=$(left "$lease")
kill -KILL "$pid"
etcd_server "$client" "$peer"
after=$(left "$lease")
recorded "at most 10 s left before the restart: $([ "$before" -le 10 ] && echo yes || echo no)
at least 15 s left after it: $([ "$after" -ge 15 ] && echo yes || echo no)
the lock: $(etcdctl get --print-value-only lock)" <<'END'
at most 10 s left before the restart: yes
at least 15 s left after it: yes
the lock: holder
END
