package gooselock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite"

	"github.com/quorumlock/quorumlock"
	gooselock "github.com/quorumlock/quorumlock/contrib/goose"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/locktest"
	"github.com/quorumlock/quorumlock/locktest/nodetest"
)

// open opens the database of a file, as a process does.
func open(t *testing.T, file string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	testkit.Must(t, err, "Open")
	t.Cleanup(func() { testkit.OK(t, db.Close(), "Close") })
	return db
}

// files has a migration for each table. Version 1 is left to a Go migration.
func files(tables ...string) fs.FS {
	all := fstest.MapFS{}
	for i, table := range tables {
		all[fmt.Sprintf("%05d_%s.sql", i+2, table)] = &fstest.MapFile{Data: fmt.Appendf(nil,
			"-- +goose Up\nCREATE TABLE %s (id INTEGER);\n-- +goose Down\nDROP TABLE %s;\n", table, table)}
	}
	return all
}

// inTx is the first migration, in a transaction; onDB has none.
func inTx(version int64, run func(context.Context) error) *goose.Migration {
	return goose.NewGoMigration(version, &goose.GoFunc{RunTx: func(ctx context.Context, _ *sql.Tx) error { return run(ctx) }}, nil)
}

func onDB(version int64, run func(context.Context) error) *goose.Migration {
	return goose.NewGoMigration(version, &goose.GoFunc{RunDB: func(ctx context.Context, _ *sql.DB) error { return run(ctx) }}, nil)
}

func newProvider(t *testing.T, db *sql.DB, files fs.FS, lock quorumlock.Locker, migrations ...*goose.Migration) *goose.Provider {
	t.Helper()
	options := []goose.ProviderOption{goose.WithGoMigrations(migrations...)}
	if lock != nil {
		locker, err := gooselock.New(lock)
		testkit.Must(t, err, "New")
		options = append(options, goose.WithSessionLocker(locker))
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files, options...)
	testkit.Must(t, err, "NewProvider")
	return p
}

// at checks the version of the database, without the lock.
func at(t *testing.T, p *goose.Provider, want int64) {
	t.Helper()
	version, _, err := p.GetVersions(t.Context())
	testkit.Must(t, err, "GetVersions")
	testkit.Equal(t, version, want, "the version of the database")
}

// Two processes start at once, each with its own connections and client of the locks.
func TestOneProcessMigrates(t *testing.T) {
	for name, locked := range map[string]bool{"locked": true, "not locked": false} {
		testkit.Run(t, name, func(t *testing.T) {
			nodes, file := nodetest.Start(t, 3), filepath.Join(t.TempDir(), "app.sqlite")
			var mu sync.Mutex
			var runs, now, together int
			backfill := func(context.Context) error {
				mu.Lock()
				runs, now = runs+1, now+1
				together = max(together, now)
				mu.Unlock()
				time.Sleep(3 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				now--
				return nil
			}
			var all sync.WaitGroup
			applied := make([]int, 2) // by process: the one that waits may return first
			var failed error
			for i := range 2 {
				var lock quorumlock.Locker
				if locked {
					lock = nodes.NewClient().Mutex("migrations")
				}
				p := newProvider(t, open(t, file), files("users", "orders"), lock, onDB(1, backfill))
				all.Go(func() {
					time.Sleep(time.Duration(i) * time.Second)
					results, err := p.Up(t.Context())
					mu.Lock()
					defer mu.Unlock()
					applied[i], failed = len(results), errors.Join(failed, err)
				})
			}
			all.Wait()
			t.Logf("%d runs, %d at a time, %v migrations applied: %v", runs, together, applied, failed)
			if locked && (failed != nil || runs != 1 || applied[0] != 3 || applied[1] != 0) {
				t.Errorf("%d runs, %v migrations applied, %v: want 1, [3 0] and no error", runs, applied, failed)
			}
			if !locked && (together != 2 || failed == nil) {
				t.Error("without a lock, one process migrated: this test cannot see what it is for")
			}
		})
	}
}

// loses loses the lock, and returns when the loss is about to close the session.
func loses(lock *locktest.Locker) func(context.Context) error {
	return func(context.Context) error {
		lock.Lose()
		for buf := make([]byte, 1<<20); ; runtime.Gosched() {
			if strings.Contains(string(buf[:runtime.Stack(buf, true)]), "database/sql.(*Conn).close(") {
				return nil
			}
		}
	}
}

func TestALostLockIsAnErrorAndTheNextMigrationDoesNotBegin(t *testing.T) {
	lock, db := locktest.New("migrations"), open(t, filepath.Join(t.TempDir(), "app.sqlite"))
	p := newProvider(t, db, files("users", "orders"), lock, inTx(1, loses(lock)))
	_, err := p.Up(t.Context())
	testkit.Is(t, err, quorumlock.ErrLost, "Up")
	testkit.Is(t, err, sql.ErrConnDone, "Up")
	at(t, p, 1) // its transaction was committed

	results, err := p.Up(t.Context())
	testkit.OK(t, err, "Up")
	testkit.Equal(t, len(results), 2, "migrations applied by the next Up")
	testkit.Unlock(t, testkit.TryLock(t, lock))
}

func TestALossDuringTheLastMigrationIsAnErrorToo(t *testing.T) {
	lock, db := locktest.New("migrations"), open(t, filepath.Join(t.TempDir(), "app.sqlite"))
	p := newProvider(t, db, nil, lock, inTx(1, loses(lock)))
	_, err := p.Up(t.Context())
	testkit.Is(t, err, quorumlock.ErrLost, "Up")
	at(t, p, 1)
}

// goose runs these on the pool, not on the connection that has the lock: a limit of the package.
func TestGoMigrationsWithoutATransactionOutlastALoss(t *testing.T) {
	lock, db := locktest.New("migrations"), open(t, filepath.Join(t.TempDir(), "app.sqlite"))
	nothing := func(context.Context) error { return nil }
	lose := func(context.Context) error { lock.Lose(); return nil } // at once: nothing uses the connection
	p := newProvider(t, db, files(), lock, onDB(1, lose), onDB(2, nothing), onDB(3, nothing))
	_, err := p.Up(t.Context())
	testkit.Is(t, err, quorumlock.ErrLost, "Up")
	at(t, p, 3)
}

// With Do, a loss ends the context of a migration, and what comes after it.
func TestDoCancelsTheMigration(t *testing.T) {
	lock, db := locktest.New("migrations"), open(t, filepath.Join(t.TempDir(), "app.sqlite"))
	p := newProvider(t, db, files("users"), lock, onDB(1, func(ctx context.Context) error {
		lease, ok := quorumlock.LeaseOf(ctx)
		if !ok || lease.HoldCount() != 2 {
			t.Errorf("the lease in a migration: %v, %v: want one of the hold of Do and the provider", lease, ok)
		}
		lock.Lose()
		<-ctx.Done()
		testkit.Is(t, context.Cause(ctx), quorumlock.ErrLost, "the cause")
		return nil // as if it had noticed nothing
	}))
	err := quorumlock.Do(t.Context(), lock, func(ctx context.Context) error {
		_, err := p.Up(ctx)
		return err
	})
	testkit.Is(t, err, quorumlock.ErrLost, "Do")
	testkit.Is(t, err, context.Canceled, "Do")
	at(t, p, 0) // not even its version was recorded
	testkit.Unlock(t, testkit.TryLock(t, lock))
}

func TestAProviderIsUsableAfterAnError(t *testing.T) {
	lock, db := locktest.New("migrations"), open(t, filepath.Join(t.TempDir(), "app.sqlite"))
	work := func(context.Context) error { t.Error("a migration without the lock"); return nil }
	p := newProvider(t, db, files("users"), lock, inTx(1, func(ctx context.Context) error { return work(ctx) }))
	fails := func(ctx context.Context, want error) {
		t.Helper()
		_, err := p.Up(ctx)
		testkit.Is(t, err, want, "Up")
		at(t, p, 0)
	}
	lock.Fail(&quorumlock.QuorumError{Needed: 2})
	fails(t.Context(), quorumlock.ErrNoQuorum)
	lock.Fail(nil)

	release := lock.Hold()
	ctx, cancel := context.WithCancel(t.Context())
	stop := context.AfterFunc(t.Context(), cancel)
	defer stop()
	go func() {
		for waiters := 0; waiters == 0; runtime.Gosched() {
			waiters = lock.Waiting()
		}
		cancel()
	}()
	fails(ctx, context.Canceled)
	release()

	work = func(context.Context) error { panic("a bug") }
	_, err := p.Up(t.Context())
	if err == nil || !strings.Contains(err.Error(), "a bug") {
		t.Errorf("Up with a bug: %v", err)
	}
	testkit.Unlock(t, testkit.TryLock(t, lock))
	work = func(context.Context) error { return nil }
	testkit.OK(t, testkit.Err(p.Up(t.Context())), "Up")
	at(t, p, 2)
	testkit.OK(t, testkit.Err(p.Down(t.Context())), "Down")
	at(t, p, 1)
	testkit.Unlock(t, testkit.TryLock(t, lock))
}

func TestBadArgumentsAreRefused(t *testing.T) {
	for name, err := range map[string]error{
		"no lock":              testkit.Err(gooselock.New(nil)),
		"no lock, with a type": testkit.Err(gooselock.New((*locktest.Locker)(nil))),
	} {
		if !errors.Is(err, quorumlock.ErrMisuse) || !strings.Contains(err.Error(), "the lock is nil") {
			t.Errorf("%s: %v, want an error of wrong use", name, err)
		}
	}
}

func TestALossAloneClosesTheConnection(t *testing.T) {
	conn, err := open(t, filepath.Join(t.TempDir(), "app.sqlite")).Conn(t.Context())
	testkit.Must(t, err, "Conn")
	lock := locktest.New("x")
	locker, err := gooselock.New(lock)
	testkit.Must(t, err, "New")
	testkit.Is(t, locker.SessionUnlock(t.Context(), conn), quorumlock.ErrNotHeld, "SessionUnlock")
	testkit.OK(t, locker.SessionLock(t.Context(), conn), "SessionLock")
	testkit.OK(t, locker.SessionUnlock(t.Context(), conn), "SessionUnlock")
	testkit.Is(t, locker.SessionUnlock(t.Context(), conn), quorumlock.ErrNotHeld, "a second SessionUnlock")

	ctx, cancel := context.WithCancel(t.Context())
	testkit.OK(t, locker.SessionLock(ctx, conn), "SessionLock")
	cancel()
	testkit.OK(t, locker.SessionUnlock(ctx, conn), "SessionUnlock")
	testkit.OK(t, conn.PingContext(t.Context()), "Ping")

	testkit.OK(t, locker.SessionLock(t.Context(), conn), "SessionLock")
	lock.Lose()
	testkit.Is(t, locker.SessionUnlock(t.Context(), conn), quorumlock.ErrLost, "SessionUnlock")
	testkit.Is(t, conn.PingContext(t.Context()), sql.ErrConnDone, "Ping")
}
