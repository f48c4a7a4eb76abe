// Package fencing has tests alone: package fence on real databases, which the tests start as
// processes of their own.
//
// The servers are those of the Debian packages postgresql, mariadb-server-core and redis-server;
// SQLite runs in this process. The tests on a missing database are skipped, and a missing Redis is
// replaced by a node in this process. With QUORUMLOCK_REQUIRE_DATABASES=1 both are a failure.
package fencing
