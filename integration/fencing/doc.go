// Package fencing has tests alone: package fence on real databases, which the tests start as processes of their own.
//
// Postgres, MariaDB and Redis must be installed; on Debian, the packages postgresql, mariadb-server-core and redis-server.
// SQLite runs in this process. A run says loudly which server is missing. With QUORUMLOCK_REQUIRE_DATABASES=1 that is a
// failure.
package fencing
