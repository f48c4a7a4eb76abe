//go:build unix

package pgxfence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/quorumlock/quorumlock"
	pgxfence "github.com/quorumlock/quorumlock/contrib/pgx"
	"github.com/quorumlock/quorumlock/fence"
	"github.com/quorumlock/quorumlock/internal/testkit/dbserver"
	"github.com/quorumlock/quorumlock/internal/testkit/require"
)

// postgres starts a server once for all tests, with the tables of their fences.
var postgres = sync.OnceValues(func() (*dbserver.Server, error) {
	s, err := dbserver.Postgres()
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	err = s.Await(func() error {
		c, err := pgx.Connect(ctx, url(s))
		if err == nil {
			err = c.Close(ctx)
		}
		return err
	})
	return s, err
})

func url(s *dbserver.Server) string {
	return "postgres://fence@" + s.Addr + "/postgres?sslmode=disable"
}

func TestMain(m *testing.M) {
	m.Run()
	if s, err := postgres(); err == nil {
		_ = s.Close()
	}
}

// connect returns a pool with connections that run statements in a mode, and the fences.
func connect(t *testing.T, mode pgx.QueryExecMode) (*pgxpool.Pool, *pgxfence.SQL, *pgxfence.TokenColumn) {
	t.Helper()
	s, err := postgres()
	if missing, ok := errors.AsType[*dbserver.MissingError](err); ok {
		require.Skip(t, "QUORUMLOCK_REQUIRE_DATABASES", missing.Error())
	}
	must(t, err)
	config, err := pgxpool.ParseConfig(url(s))
	must(t, err)
	config.ConnConfig.DefaultQueryExecMode = mode
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	must(t, err)
	t.Cleanup(pool.Close)
	table, err := pgxfence.NewSQL("")
	must(t, err)
	rows, err := pgxfence.NewTokenColumn(fence.Columns{Table: "accounts", Key: "id", Token: "fencing_token"})
	must(t, err)
	for _, statement := range []string{
		"DROP TABLE IF EXISTS accounts", "DROP TABLE IF EXISTS quorumlock_fence",
		"CREATE TABLE accounts (id BIGINT NOT NULL PRIMARY KEY, owner TEXT NOT NULL, balance BIGINT NOT NULL)",
		table.Migration(), table.Migration(), rows.Migration(),
		"INSERT INTO accounts (id, owner, balance) VALUES (1, 'a', 0), (2, 'b', 0)",
	} {
		_, err := pool.Exec(t.Context(), statement)
		must(t, err)
	}
	return pool, table, rows
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec,
	pgx.QueryExecModeSimpleProtocol,
}

func TestAStaleHolderIsRefused(t *testing.T) {
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			pool, table, rows := connect(t, mode)
			ctx := t.Context()
			within := func(check func(tx pgx.Tx) error) error { return pgx.BeginFunc(ctx, pool, check) }
			check := func(token uint64) error {
				return within(func(tx pgx.Tx) error { return table.Check(ctx, tx, "x", token) })
			}
			checkRow := func(token uint64) error {
				return within(func(tx pgx.Tx) error { return rows.Check(ctx, tx, 1, token) })
			}
			set := func(token uint64) error {
				return rows.Set(ctx, pool, 1, token, map[string]any{"owner": fmt.Sprint(token), "balance": int64(token)})
			}
			for name, err := range map[string]error{"SQL.Check": check(5), "TokenColumn.Check": checkRow(5), "Set": set(5), "Mark of no row": rows.Mark(ctx, pool, 9, 5)} {
				if !errors.Is(err, fence.ErrMissing) {
					t.Errorf("%s before a Mark: %v, want ErrMissing", name, err)
				}
			}
			conn, err := pool.Acquire(ctx)
			must(t, err)
			must(t, table.Mark(ctx, conn.Conn(), "x", 5)) // a *pgx.Conn
			conn.Release()
			must(t, rows.Mark(ctx, pool, 1, 5))
			must(t, errors.Join(check(5), checkRow(5), set(5)))
			must(t, within(func(tx pgx.Tx) error { return table.Mark(ctx, tx, "x", 7) }))
			must(t, rows.Mark(ctx, pool, 1, 7))
			for name, err := range map[string]error{
				"SQL.Mark": table.Mark(ctx, pool, "x", 6), "SQL.Check": check(6),
				"TokenColumn.Mark": rows.Mark(ctx, pool, 1, 6), "TokenColumn.Check": checkRow(6), "Set": set(6),
			} {
				if stale, ok := errors.AsType[*fence.StaleError](err); !ok || stale.Token != 6 || stale.Seen != 7 {
					t.Errorf("%s with token 6 after 7: %v, want that it is stale", name, err)
				}
			}
			var owner string
			var balance int64
			must(t, pool.QueryRow(ctx, "SELECT owner, balance FROM accounts WHERE id = 1").Scan(&owner, &balance))
			if owner != "5" || balance != 5 {
				t.Errorf("the row has %q and %d, want what token 5 wrote", owner, balance)
			}
			must(t, set(8)) // a higher token needs no Mark
		})
	}
}

// RunInTx commits the work of a holder, and rolls back that of a stale or failed one.
func TestRunInTxCommitsAllOrNothing(t *testing.T) {
	pool, table, rows := connect(t, pgx.QueryExecModeCacheStatement)
	broken, total := errors.New("broken"), int64(0)
	for name, runInTx := range map[string]func(ctx context.Context, fn func(tx pgx.Tx) error) error{
		"SQL":         func(ctx context.Context, fn func(tx pgx.Tx) error) error { return table.RunInTx(ctx, pool, "x", fn) },
		"TokenColumn": func(ctx context.Context, fn func(tx pgx.Tx) error) error { return rows.RunInTx(ctx, pool, 1, fn) },
	} {
		for _, step := range []struct {
			token       uint64
			fails, want error
		}{{9, broken, broken}, {8, nil, nil}, {7, nil, fence.ErrStale}, {8, nil, nil}} {
			err := runInTx(fence.NewContext(t.Context(), step.token), func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), "UPDATE accounts SET balance = balance + 1 WHERE id = 1")
				return errors.Join(err, step.fails)
			})
			if !errors.Is(err, step.want) {
				t.Errorf("%s with token %d: %v, want %v", name, step.token, err, step.want)
			}
			if step.want == nil {
				total++
			}
			var balance int64
			must(t, pool.QueryRow(t.Context(), "SELECT balance FROM accounts WHERE id = 1").Scan(&balance))
			if balance != total {
				t.Errorf("%s with token %d: the balance is %d, want %d", name, step.token, balance, total)
			}
		}
	}
	if err := rows.RunInTx(fence.NewContext(t.Context(), 1), pool, 9, func(pgx.Tx) error { return nil }); !errors.Is(err, fence.ErrMissing) {
		t.Errorf("of a row that does not exist: %v, want ErrMissing", err)
	}
}

// A holder is paused after its Check: the next one's Mark waits for its transaction, and the first
// is refused from then on.
func TestAMarkWaitsForTheTransactionUnderWay(t *testing.T) {
	pool, table, _ := connect(t, pgx.QueryExecModeCacheStatement)
	ctx := t.Context()
	must(t, table.Mark(ctx, pool, "x", 1))
	marked := make(chan error, 1)
	must(t, pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		must(t, table.Check(ctx, tx, "x", 1))
		go func() { marked <- table.Mark(ctx, pool, "x", 2) }()
		for waiting := 0; waiting == 0; time.Sleep(time.Millisecond) {
			must(t, ctx.Err())
			must(t, pool.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").Scan(&waiting))
		}
		if len(marked) != 0 {
			t.Error("the Mark did not wait")
		}
		_, err := tx.Exec(ctx, "UPDATE accounts SET balance = 1 WHERE id = 1")
		return err
	}))
	must(t, <-marked)
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return table.Check(ctx, tx, "x", 1) })
	if !errors.Is(err, fence.ErrStale) {
		t.Errorf("Check after the next Mark: %v, want ErrStale", err)
	}
}

// The snapshot of a transaction is older than a Mark: no level lets its write through.
func TestAnOldSnapshotIsRefused(t *testing.T) {
	for level, want := range map[pgx.TxIsoLevel]string{pgx.ReadCommitted: "stale", pgx.RepeatableRead: "40001", pgx.Serializable: "40001"} {
		t.Run(string(level), func(t *testing.T) {
			pool, table, rows := connect(t, pgx.QueryExecModeCacheStatement)
			ctx := t.Context()
			must(t, errors.Join(table.Mark(ctx, pool, "x", 1), rows.Mark(ctx, pool, 1, 1)))
			for name, check := range map[string]func(tx pgx.Tx) error{
				"SQL":         func(tx pgx.Tx) error { return table.Check(ctx, tx, "x", 1) },
				"TokenColumn": func(tx pgx.Tx) error { return rows.Check(ctx, tx, 1, 1) },
			} {
				err := pgx.BeginTxFunc(ctx, pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "SELECT balance FROM accounts") // takes the snapshot
					must(t, errors.Join(err, table.Mark(ctx, pool, "x", 2), rows.Mark(ctx, pool, 1, 2)))
					return check(tx)
				})
				e, _ := errors.AsType[*pgconn.PgError](err)
				if got := errors.Is(err, fence.ErrStale); got != (want == "stale") || !got && (e == nil || e.Code != want) {
					t.Errorf("%s: %v, want %s", name, err, want)
				}
				must(t, errors.Join(table.Mark(ctx, pool, "x", 2), rows.Mark(ctx, pool, 1, 2)))
			}
		})
	}
}

// The statements of package fence run in a batch with the writes, in one round trip.
func TestStatementsRunInABatch(t *testing.T) {
	pool, _, _ := connect(t, pgx.QueryExecModeCacheStatement)
	ctx := t.Context()
	table, err := fence.NewSQL(fence.Postgres, "")
	must(t, err)
	pay := func(token uint64) error {
		check, err := table.CheckStatement("x", token)
		must(t, err)
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			var b pgx.Batch
			b.Queue(check.Text, check.Args...).QueryRow(func(row pgx.Row) error {
				var seen int64
				if err := row.Scan(&seen); err != nil && !errors.Is(err, pgx.ErrNoRows) {
					return err
				}
				return check.Judge(seen)
			})
			b.Queue("UPDATE accounts SET balance = balance + 1 WHERE id = 1")
			return tx.SendBatch(ctx, &b).Close()
		})
	}
	if err := pay(3); !errors.Is(err, fence.ErrMissing) {
		t.Errorf("before a Mark: %v, want ErrMissing", err)
	}
	mark, err := table.MarkStatement("x", 3)
	must(t, err)
	var seen int64
	must(t, pool.QueryRow(ctx, mark.Text, mark.Args...).Scan(&seen))
	must(t, errors.Join(mark.Judge(seen), pay(3)))
	if err := pay(2); !errors.Is(err, fence.ErrStale) {
		t.Errorf("with a lower token: %v, want ErrStale", err)
	}
	var balance int64
	must(t, pool.QueryRow(ctx, "SELECT balance FROM accounts WHERE id = 1").Scan(&balance))
	if balance != 1 {
		t.Errorf("the balance is %d, want 1: the refused transactions must write nothing", balance)
	}
}

func TestTheErrorOfTheDriverIsKept(t *testing.T) {
	pool, table, _ := connect(t, pgx.QueryExecModeCacheStatement)
	_, err := pool.Exec(t.Context(), "DROP TABLE quorumlock_fence")
	must(t, err)
	err = table.Mark(t.Context(), pool, "x", 1)
	if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "42P01" || !strings.HasPrefix(err.Error(), `quorumlock: pgxfence: Mark of "x" in the table quorumlock_fence: `) {
		t.Errorf("without the table: %v", err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := table.Mark(cancelled, pool, "x", 1); !errors.Is(err, context.Canceled) {
		t.Errorf("with a cancelled ctx: %v", err)
	}
}

func TestBadArgumentsAreRefusedByName(t *testing.T) {
	table, err := pgxfence.NewSQL("")
	must(t, err)
	rows, err := pgxfence.NewTokenColumn(fence.Columns{Table: "accounts", Key: "id", Token: "fencing_token"})
	must(t, err)
	_, badTable := pgxfence.NewSQL("a b")
	_, badColumns := pgxfence.NewTokenColumn(fence.Columns{Table: "accounts"})
	ctx, db := t.Context(), new(pgxpool.Pool) // nothing reaches it
	held, work := fence.NewContext(ctx, 1), func(pgx.Tx) error { return nil }
	var none context.Context
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"table":       {badTable, "the table"},
		"columns":     {badColumns, "the key column"},
		"ctx":         {table.Mark(none, db, "x", 1), "context is nil"},
		"nil db":      {table.Mark(ctx, nil, "x", 1), "the database is nil"},
		"typed nil":   {table.Mark(ctx, (*pgxpool.Pool)(nil), "x", 1), "the database is nil"},
		"nil tx":      {table.Check(ctx, nil, "x", 1), "the database is nil"},
		"tx, ctx":     {table.RunInTx(none, db, "x", work), "context is nil"},
		"tx, nil db":  {table.RunInTx(held, (*pgxpool.Pool)(nil), "x", work), "the database is nil"},
		"tx, nothing": {table.RunInTx(held, db, "x", nil), "the function is nil"},
		"tx, token":   {rows.RunInTx(ctx, db, 1, work), "the context has no fencing token"},
		"tx, name":    {table.RunInTx(held, db, "", work), "the resource is empty"},
		"resource":    {table.Mark(ctx, db, "", 1), "the resource is empty"},
		"token":       {rows.Mark(ctx, db, 1, 0), "the fencing token is 0"},
		"no columns":  {rows.Set(ctx, db, 1, 1, nil), "no columns"},
		"nil row tx":  {rows.Check(ctx, nil, 1, 1), "the database is nil"},
		"token twice": {rows.Set(ctx, db, 1, 1, map[string]any{"fencing_token": 2}), "leave it out"},
	} {
		if tt.err == nil || !strings.Contains(tt.err.Error(), tt.want) || !strings.HasPrefix(tt.err.Error(), "quorumlock: ") || !errors.Is(tt.err, quorumlock.ErrMisuse) {
			t.Errorf("%s: %v, want an error of wrong use about %q", name, tt.err, tt.want)
		}
	}
}
