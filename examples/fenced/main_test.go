//go:build unix

package main

import (
	"database/sql"
	"errors"
	"testing"

	"github.com/quorumlock/quorumlock/examples/internal/try"
	"github.com/quorumlock/quorumlock/fence"
	"github.com/quorumlock/quorumlock/internal/testkit/dbserver"
	"github.com/quorumlock/quorumlock/internal/testkit/require"
)

func TestFencedWriteToPostgres(t *testing.T) {
	server, err := dbserver.Postgres()
	if _, missing := errors.AsType[*dbserver.MissingError](err); missing {
		require.Skip(t, "QUORUMLOCK_REQUIRE_DATABASES", err.Error())
	}
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close() //nolint:errcheck // the test has ended
	url := "postgres://fence@" + server.Addr + "/postgres?sslmode=disable"
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // the test has ended
	if err := server.Await(db.Ping); err != nil {
		t.Fatal(err)
	}
	table, err := fence.NewSQL(fence.Postgres, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, migration := range []string{table.Migration(), "CREATE TABLE invoices (id INT, paid BOOL)", "INSERT INTO invoices VALUES (1042, false)"} {
		if _, err := db.Exec(migration); err != nil {
			t.Fatal(err)
		}
	}
	try.Main(main, url)
	var paid bool
	if err := db.QueryRow("SELECT paid FROM invoices").Scan(&paid); err != nil || !paid {
		t.Errorf("paid is %v, %v: want that the example has written", paid, err)
	}
	if err := table.Mark(t.Context(), db, "invoice:1042", 1); !errors.Is(err, fence.ErrStale) {
		t.Errorf("an older token: %v, want ErrStale", err)
	}
}
