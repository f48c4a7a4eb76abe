#!/usr/bin/env bash
# A deadlock of GET_LOCK on MariaDB has the number of InnoDB's deadlock, but the transaction goes on.
#
# Expected: two sessions that want each other's named locks wait until the timeout, 10 s here, which then returns 0. Or, since the
#           error is 1213, "try restarting transaction": the transaction is rolled back, as after any 1213 of InnoDB.
# Seen:     one of them gets 1213 at once. Its insert is still there, the transaction is open, and it still has its own lock. Code
#           that answers 1213 with the whole transaction again, without a ROLLBACK, inserts twice.
# Package:  Debian's mariadb-server 10.11.19
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"
mariadb 10.11.19
one=$work/one two=$work/two
"${mariadb[@]}" <<'END'
CREATE DATABASE d;
CREATE TABLE d.orders (id int) ENGINE=InnoDB;
END
"${mariadb[@]}" >"$one" 2>&1 <<'END' &
SELECT GET_LOCK('a', 0);
SELECT SLEEP(1);
SELECT 'one waits for b:', GET_LOCK('b', 10);
END
sleep 0.3
"${mariadb[@]}" >"$two" 2>&1 <<'END'
SELECT GET_LOCK('b', 0);
BEGIN;
INSERT INTO d.orders VALUES (1);
SELECT SLEEP(2);
SELECT 'two waits for a:', GET_LOCK('a', 10);
SELECT 'two, in a transaction:', @@in_transaction, 'rows:', COUNT(*) FROM d.orders;
SELECT 'two, still has b:', IS_USED_LOCK('b') = CONNECTION_ID();
INSERT INTO d.orders VALUES (1);
COMMIT;
SELECT 'two, rows after the second try:', COUNT(*) FROM d.orders;
END
until_true grep -q 'one waits' "$one"
recorded "$(grep -oE 'ERROR [0-9]+' "$two")
$(grep 'two' "$two" | tr '\t' ' ')
$(grep 'one' "$one" | tr '\t' ' ')" <<'END'
ERROR 1213
two, in a transaction: 1 rows: 1
two, still has b: 1
two, rows after the second try: 2
one waits for b: 1
END
