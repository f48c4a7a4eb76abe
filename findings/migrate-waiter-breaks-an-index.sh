#!/usr/bin/env bash
# Two instances of golang-migrate and one CREATE INDEX CONCURRENTLY deadlock; how long one has waited decides which of them fails.
#
# Expected: an instance that waits for the migration lock is harmless, and goes on when the other one is done.
# Seen:     the waiter's pg_advisory_lock has a snapshot, for which CREATE INDEX CONCURRENTLY waits. PostgreSQL ends the
#           deadlock after a second. If the waiter came less than a second before, the waiter fails, and the index is built. If
#           it has waited longer, the migration fails: the version is dirty, and the index stays behind, invalid.
# Package:  github.com/golang-migrate/migrate/v4 v4.20.1, Debian's postgresql-15 15.18
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"
postgres 15.18
program github.com/golang-migrate/migrate/v4@v4.20.1 <<'END'
package main

import (
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database/postgres"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	_ "github.com/lib/pq"
)

func main() {
	db := open()
	for _, wait := range []time.Duration{200 * time.Millisecond, 2 * time.Second} {
		_, err := db.Exec("DROP TABLE IF EXISTS schema_migrations, orders; CREATE TABLE orders (id int)")
		check(err)
		first, second := instance(), instance()
		writer, err := db.Begin() // the index has to wait for this one first
		check(err)
		_, err = writer.Exec("INSERT INTO orders VALUES (1)")
		check(err)
		results := [2]chan string{make(chan string, 1), make(chan string, 1)}
		go func() { results[0] <- fail(first.Up()) }()
		until(db, "locktype = 'virtualxid' AND NOT granted")
		go func() { results[1] <- fail(second.Up()) }()
		until(db, "locktype = 'advisory' AND NOT granted")
		time.Sleep(wait)
		check(writer.Commit())
		fmt.Printf("a waiter of %v: first %s, second %s, ", wait, <-results[0], <-results[1])
		var dirty, valid bool
		check(db.QueryRow("SELECT dirty FROM schema_migrations").Scan(&dirty))
		check(db.QueryRow("SELECT indisvalid FROM pg_index WHERE indexrelid = 'by_id'::regclass").Scan(&valid))
		fmt.Printf("dirty %v, index valid %v\n", dirty, valid)
	}
}

func fail(err error) string {
	if err != nil && strings.Contains(err.Error(), "deadlock detected") {
		return "has the deadlock"
	}
	if err != nil {
		return "says " + strings.ToLower(err.Error())
	}
	return "succeeds"
}

func instance() *migrate.Migrate {
	driver, err := postgres.WithInstance(open(), &postgres.Config{})
	check(err)
	files, err := iofs.New(fstest.MapFS{"files/1_index.up.sql": {Data: []byte("CREATE INDEX CONCURRENTLY by_id ON orders (id)")}}, "files")
	check(err)
	m, err := migrate.NewWithInstance("iofs", files, "postgres", driver)
	check(err)
	return m
}

func open() *sql.DB {
	db, err := sql.Open("postgres", os.Args[1])
	check(err)
	return db
}

func until(db *sql.DB, lock string) {
	for n := 0; n == 0; time.Sleep(10 * time.Millisecond) {
		check(db.QueryRow("SELECT count(*) FROM pg_locks WHERE " + lock).Scan(&n))
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
END
recorded "$(timeout 60 "$program" "$postgres" 2>&1)" <<'END'
a waiter of 200ms: first succeeds, second has the deadlock, dirty false, index valid true
a waiter of 2s: first has the deadlock, second says dirty database version 1. fix and force version., dirty true, index valid false
END
