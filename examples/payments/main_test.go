//go:build unix

package main

import (
	"database/sql"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/quorumlock/quorumlock/examples/internal/try"
	"github.com/quorumlock/quorumlock/fence"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/dbserver"
	"github.com/quorumlock/quorumlock/internal/testkit/require"
)

func TestMain(m *testing.M) { try.Main(m, main) }

func TestTwoProcessesPayAnInvoiceOnce(t *testing.T) {
	server, err := dbserver.Postgres()
	if _, missing := errors.AsType[*dbserver.MissingError](err); missing {
		require.Skip(t, "QUORUMLOCK_REQUIRE_DATABASES", err.Error())
	}
	testkit.Must(t, err, "Postgres")
	defer server.Close() //nolint:errcheck // the test has ended
	url := "postgres://fence@" + server.Addr + "/postgres?sslmode=disable"
	db, err := sql.Open("pgx", url)
	testkit.Must(t, err, "Open")
	defer db.Close() //nolint:errcheck // the test has ended
	testkit.Must(t, server.Await(db.Ping), "Await")

	fleet := try.New(t, "DATABASE_URL="+url, "ADDR=127.0.0.1:0")
	one, other := fleet.Start(""), fleet.Start("")
	addrs := []string{strings.TrimPrefix(fleet.Line(), "serving at "), strings.TrimPrefix(fleet.Line(), "serving at ")}
	ask := func(process int, invoice string) int {
		answer, err := http.Post("http://"+addrs[process%2]+"/invoices/"+invoice+"/pay", "", nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	var payers sync.WaitGroup
	var paid atomic.Int32
	for i := range 10 {
		payers.Go(func() {
			status := ask(i, "1042")
			for status == http.StatusServiceUnavailable {
				status = ask(i, "1042")
			}
			if status == http.StatusOK {
				paid.Add(1)
			}
		})
	}
	payers.Wait()
	expect(t, db, "invoice:1042", 1)
	if n := paid.Load(); n != 1 {
		t.Errorf("%d requests have paid, want one", n)
	}

	table, err := fence.NewSQL(fence.Postgres, "")
	testkit.Must(t, err, "NewSQL")
	testkit.Must(t, table.Mark(t.Context(), db, "invoice:7", 1<<60), "Mark") // a later holder
	if status := ask(0, "7"); status != http.StatusServiceUnavailable {
		t.Errorf("a late payment: status %d, want 503", status)
	}
	expect(t, db, "invoice:7", 0)
	fleet.Stop(one, other)
}

func expect(t *testing.T, db *sql.DB, invoice string, want int) {
	t.Helper()
	var n int
	testkit.Must(t, db.QueryRow("SELECT count(*) FROM payments WHERE invoice = $1", invoice).Scan(&n), "count")
	if n != want {
		t.Errorf("%s has %d payments, want %d", invoice, n, want)
	}
}
