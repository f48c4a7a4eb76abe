#!/usr/bin/env bash
# goose's read-only calls wait for the lock of migrations, or do not, by the call.
#
# Expected: Status and GetDBVersion only read, so they take no session lock; or all calls that read do alike.
# Seen:     Status and GetDBVersion take and release the session lock, as Up does, so a health check that calls them waits for a
#           migration on another host. HasPending and GetVersions take none.
# Package:  github.com/pressly/goose/v3 v3.30.0, modernc.org/sqlite v1.62.0
# Date:     2026-11-29
. "$(dirname "$0")/lib.bash"
program github.com/pressly/goose/v3@v3.30.0 modernc.org/sqlite@v1.62.0 <<'END'
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"testing/fstest"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite"
)

type locker struct{ taken int }

func (l *locker) SessionLock(context.Context, *sql.Conn) error   { l.taken++; return nil }
func (l *locker) SessionUnlock(context.Context, *sql.Conn) error { return nil }

func main() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", os.Args[1])
	check(err)
	l := new(locker)
	files := fstest.MapFS{"00001_t.sql": {Data: []byte("-- +goose Up\nCREATE TABLE t (id INTEGER);\n")}}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithSessionLocker(l))
	check(err)
	count := func(call string, f func() error) {
		before := l.taken
		check(f())
		fmt.Printf("%s: %d locks\n", call, l.taken-before)
	}
	count("Up", func() error { _, err := p.Up(ctx); return err })
	count("Status", func() error { _, err := p.Status(ctx); return err })
	count("GetDBVersion", func() error { _, err := p.GetDBVersion(ctx); return err })
	count("HasPending", func() error { _, err := p.HasPending(ctx); return err })
	count("GetVersions", func() error { _, _, err := p.GetVersions(ctx); return err })
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
END
recorded "$("$program" "$work/app.sqlite" 2>&1)" <<'END'
Up: 1 locks
Status: 1 locks
GetDBVersion: 1 locks
HasPending: 0 locks
GetVersions: 0 locks
END
