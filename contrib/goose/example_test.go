package gooselock_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/quorumlock/quorumlock"
	gooselock "github.com/quorumlock/quorumlock/contrib/goose"
	"github.com/quorumlock/quorumlock/internal/testkit"
)

func ExampleNew() {
	client, _, stop := testkit.Connect(3) // in place of redlock.Dial(urls)
	defer stop()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	defer db.Close() //nolint:errcheck // in memory

	lock := client.Mutex("myapp:migrations", quorumlock.WithWait(5*time.Minute))
	locker, err := gooselock.New(lock)
	if err != nil {
		panic(err)
	}
	files := fstest.MapFS{"00001_users.sql": {Data: []byte("-- +goose Up\nCREATE TABLE users (id INTEGER);")}}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithSessionLocker(locker))
	if err != nil {
		panic(err)
	}
	err = quorumlock.Do(context.Background(), lock, func(ctx context.Context) error { // a loss cancels ctx
		results, err := provider.Up(ctx)
		fmt.Println("applied:", len(results))
		return err
	})
	fmt.Println(err)
	// Output:
	// applied: 1
	// <nil>
}

func ExampleSessionLocker() {
	client, _, stop := testkit.Connect(3) // in place of redlock.Dial(urls)
	defer stop()
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	defer db.Close() //nolint:errcheck // in memory
	lock := client.Mutex("myapp:migrations")
	locker, err := gooselock.New(lock)
	if err != nil {
		panic(err)
	}

	// A provider makes these calls around the migrations:
	ctx := context.Background()
	conn, err := db.Conn(ctx)
	if err != nil {
		panic(err)
	}
	defer conn.Close() //nolint:errcheck // of the pool
	if err := locker.SessionLock(ctx, conn); err != nil {
		panic(err)
	}
	state, err := client.Inspect(ctx, lock.Name())
	fmt.Println("held:", state.State.Held(), err)
	fmt.Println(locker.SessionUnlock(ctx, conn))
	// Output:
	// held: true <nil>
	// <nil>
}
