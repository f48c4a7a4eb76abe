//go:build unix

package fencing

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/fence"
	"github.com/quorumlock/quorumlock/internal/testkit"
)

func TestStaleIsToldFromMissing(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		f, ctx, id := d.migrate(t), t.Context(), "stale or missing"
		d.open(t, id)
		within := func(check func(tx *sql.Tx) error) error {
			tx, err := d.db.BeginTx(ctx, nil)
			must(t, err)
			defer tx.Rollback() //nolint:errcheck // it has only looked
			return check(tx)
		}
		type calls map[string]func(id string, token uint64) error
		table := calls{
			"Mark": func(id string, token uint64) error { return f.table.Mark(ctx, d.db, id, token) },
			"Check": func(id string, token uint64) error {
				return within(func(tx *sql.Tx) error { return f.table.Check(ctx, tx, id, token) })
			},
		}
		rows := calls{
			"Mark": func(id string, token uint64) error { return f.rows.Mark(ctx, d.db, id, token) },
			"Check": func(id string, token uint64) error {
				return within(func(tx *sql.Tx) error { return f.rows.Check(ctx, tx, id, token) })
			},
			"Set": func(id string, token uint64) error {
				return f.rows.Set(ctx, d.db, id, token, map[string]any{"balance": int64(token)})
			},
		}
		for name, call := range rows {
			testkit.Is(t, call("nobody", 5), fence.ErrMissing, "%s of a row that does not exist", name)
		}
		for _, of := range []struct {
			resource string // in errors
			calls
		}{{id, table}, {"accounts " + id, rows}} {
			for name, call := range of.calls {
				if name != "Mark" {
					testkit.Is(t, call(id, 5), fence.ErrMissing, "%s of %q, which was never marked", name, of.resource)
				}
			}
			testkit.Equal(t, d.balance(t, id), 0, "the balance before the first mark")
			for _, token := range []uint64{5, 5, 7} { // a Mark may be repeated
				testkit.OK(t, of.calls["Mark"](id, token), "Mark of %q with token %d", of.resource, token)
			}
			for name, call := range of.calls {
				testkit.OK(t, call(id, 7), "%s of %q with the token that was marked", name, of.resource)
				err := call(id, 6)
				testkit.Is(t, err, fence.ErrStale, "%s of %q with token 6 after 7", name, of.resource)
				if stale, ok := errors.AsType[*fence.StaleError](err); !ok || *stale != (fence.StaleError{Resource: of.resource, Token: 6, Seen: 7}) {
					t.Errorf("%s of %q with token 6 after 7: %+v", name, of.resource, stale)
				}
			}
		}
		testkit.Equal(t, d.balance(t, id), 7, "the balance after a Set that was refused")
	})
}

// A mark counts from its commit on, and a transaction that is rolled back has marked nothing.
func TestMarkOfATransactionEndsWithIt(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		f, ctx := d.migrate(t), t.Context()
		tx, err := d.db.BeginTx(ctx, nil)
		must(t, err)
		must(t, f.table.Mark(ctx, tx, "rolled back", 9))
		must(t, tx.Rollback())
		must(t, f.table.Mark(ctx, d.db, "rolled back", 8))
	})
}

// RunInTx commits the work of a holder, and rolls back that of a stale or failed one.
func TestRunInTxCommitsAllOrNothing(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		f, id := d.migrate(t), "in a transaction"
		d.open(t, id)
		for name, runInTx := range map[string]func(ctx context.Context, fn func(tx *sql.Tx) error) error{
			"SQL":         func(ctx context.Context, fn func(tx *sql.Tx) error) error { return f.table.RunInTx(ctx, d.db, id, fn) },
			"TokenColumn": func(ctx context.Context, fn func(tx *sql.Tx) error) error { return f.rows.RunInTx(ctx, d.db, id, fn) },
		} {
			t.Run(name, func(t *testing.T) {
				broken, before := errors.New("broken"), d.balance(t, id)
				write := func(token uint64, end func() error) error {
					return runInTx(fence.NewContext(t.Context(), token), func(tx *sql.Tx) error {
						_, err := tx.ExecContext(t.Context(), d.bind("UPDATE accounts SET balance = balance + 1 WHERE id = ?"), id)
						must(t, err)
						return end()
					})
				}
				ok := func() error { return nil }
				testkit.Is(t, write(9, func() error { return broken }), broken, "RunInTx")
				func() {
					defer func() { testkit.Equal(t, recover(), any("broken"), "recovered") }()
					_ = write(9, func() error { panic("broken") })
				}()
				testkit.Equal(t, d.balance(t, id), before, "the balance after a failure and a panic")
				must(t, write(8, ok)) // the mark of 9 was rolled back, too
				must(t, write(8, ok))
				testkit.Is(t, write(7, func() error { t.Error("a stale holder has written"); return nil }), fence.ErrStale, "RunInTx with token 7 after 8")
				cancelled, cancel := context.WithCancel(fence.NewContext(t.Context(), 8))
				err := runInTx(cancelled, func(*sql.Tx) error { cancel(); return nil })
				testkit.Is(t, err, context.Canceled, "RunInTx, whose lease is lost")
				testkit.Equal(t, d.balance(t, id), before+2, "the balance")
			})
		}
		err := f.rows.RunInTx(fence.NewContext(t.Context(), 1), d.db, "nobody", func(*sql.Tx) error { return nil })
		testkit.Is(t, err, fence.ErrMissing, "RunInTx of a row that does not exist")
	})
}

// Names that differ in case or in trailing blanks are different resources, in any collation.
func TestResourcesAreToldApart(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		f, ctx := d.migrate(t), t.Context()
		must(t, f.table.Mark(ctx, d.db, "Apart", 9))
		for _, name := range []string{"apart", "Apart ", "Äpart", "' OR 1=1 --", strings.Repeat("x", 255)} {
			testkit.OK(t, f.table.Mark(ctx, d.db, name, 1), "Mark of %q", name)
		}
	})
}

func TestDriversErrorsAreFound(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		d.migrate(t)
		table, err := fence.NewSQL(d.dialect, "not_there")
		must(t, err)
		err = table.Mark(t.Context(), d.db, "x", 1)
		if err == nil || errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrMissing) || !strings.Contains(err.Error(), "not_there") || errors.Unwrap(err) == nil {
			t.Errorf("Mark in a table that does not exist: %v, want the driver's error with the table's name", err)
		}
	})
}

// A column that was added without the migration may be NULL.
func TestARowWhoseTokenIsNullWasNeverMarked(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		ctx := t.Context()
		rows, err := fence.NewTokenColumn(d.dialect, fence.Columns{Table: "nullable", Key: "id", Token: "fence"})
		must(t, err)
		for _, statement := range []string{
			"CREATE TABLE nullable (id INTEGER NOT NULL PRIMARY KEY, fence BIGINT, written BIGINT)",
			"INSERT INTO nullable (id) VALUES (1)",
		} {
			_, err := d.db.ExecContext(ctx, statement)
			must(t, err)
		}
		set := func() error { return rows.Set(ctx, d.db, 1, 5, map[string]any{"written": 5}) }
		testkit.Is(t, set(), fence.ErrMissing, "Set before Mark")
		var token, written sql.NullInt64
		if err := d.db.QueryRowContext(ctx, "SELECT fence, written FROM nullable").Scan(&token, &written); err != nil || token.Valid || written.Valid {
			t.Errorf("Set before Mark has left the token %v and the value %v, %v: want both NULL", token, written, err)
		}
		must(t, rows.Mark(ctx, d.db, 1, 5))
		must(t, set())
	})
}

// tracing wraps a transaction, like packages for tracing and mapping.
type tracing struct{ *sql.Tx }

func TestCheckOutsideATransactionIsRefused(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		f, ctx := d.migrate(t), t.Context()
		conn, err := d.db.Conn(ctx)
		must(t, err)
		for _, tx := range []fence.DB{d.db, conn, struct{ *sql.DB }{d.db}} {
			for _, err := range []error{f.table.Check(ctx, tx, "x", 1), f.rows.Check(ctx, tx, "x", 1)} {
				if err == nil || !strings.Contains(err.Error(), "*sql.Tx") {
					t.Errorf("Check with a %T: %v, want what to use instead", tx, err)
				}
			}
		}
		must(t, conn.Close())
		tx, err := d.db.BeginTx(ctx, nil)
		must(t, err)
		defer tx.Rollback() //nolint:errcheck // it has only looked
		err = f.table.Check(ctx, tracing{tx}, "never marked", 1)
		testkit.Is(t, err, fence.ErrMissing, "Check of a transaction inside another type")
	})
}
