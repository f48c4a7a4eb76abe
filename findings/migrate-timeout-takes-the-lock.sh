#!/usr/bin/env bash
# golang-migrate takes the lock after it has given up on it, and keeps it.
#
# Expected: after "timeout: can't acquire database lock", this instance has nothing, and the next one gets the lock.
# Seen:     pg_advisory_lock runs on behind the timeout. When the holder releases, the server grants the lock to the instance
#           that gave up. Its next Up says that it cannot lock, since it does hold the lock, and everybody else waits until
#           its connection is closed: another instance hangs already in WithInstance, where no LockTimeout applies.
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
	"testing/fstest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database/postgres"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	_ "github.com/lib/pq"
)

func main() {
	pool := open()
	holder, late := instance(), instance()
	late.LockTimeout = time.Second

	done := make(chan error)
	go func() { done <- holder.Up() }()
	until(pool, "granted", 1)
	fmt.Println("the late instance:", late.Up())
	fmt.Println("the holder:", <-done)
	until(pool, "NOT granted", 0)
	time.Sleep(time.Second)
	fmt.Println("locks, with nobody migrating:", locks(pool, "granted"))
	fmt.Println("the late instance again:", late.Up())

	made := make(chan *migrate.Migrate, 1)
	go func() { made <- instance() }()
	select {
	case <-made:
		fmt.Println("a new instance is made at once")
	case <-time.After(5 * time.Second):
		fmt.Println("a new instance is not made within 5 s")
	}
	late.Close()
	fmt.Println("after the late instance is closed:", (<-made).Up())
}

func instance() *migrate.Migrate {
	driver, err := postgres.WithInstance(open(), &postgres.Config{})
	check(err)
	files, err := iofs.New(fstest.MapFS{"files/1_slow.up.sql": {Data: []byte("SELECT pg_sleep(3)")}}, "files")
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

func locks(db *sql.DB, state string) (n int) {
	check(db.QueryRow("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND " + state).Scan(&n))
	return n
}

func until(db *sql.DB, state string, n int) {
	for locks(db, state) != n {
		time.Sleep(20 * time.Millisecond)
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
END
recorded "$(timeout 60 "$program" "$postgres" 2>&1)" <<'END'
the late instance: timeout: can't acquire database lock
the holder: <nil>
locks, with nobody migrating: 1
the late instance again: can't acquire lock
a new instance is not made within 5 s
after the late instance is closed: no change
END
