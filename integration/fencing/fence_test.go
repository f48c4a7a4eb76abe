//go:build unix

package fencing

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/fence"
)

func TestStaleIsToldFromMissing(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		f := d.migrate(t)
		ctx, id := t.Context(), "stale or missing"
		d.open(t, id)
		within := func(check func(tx *sql.Tx) error) error {
			tx, err := d.db.BeginTx(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback() //nolint:errcheck // it has only looked
			return check(tx)
		}
		check := func(token uint64) error {
			return within(func(tx *sql.Tx) error { return f.table.Check(ctx, tx, id, token) })
		}
		if err := check(5); !errors.Is(err, fence.ErrMissing) {
			t.Errorf("Check of a resource that was never marked: %v, want ErrMissing", err)
		}
		for _, token := range []uint64{5, 5, 7} { // a Mark may be repeated
			if err := f.table.Mark(ctx, d.db, id, token); err != nil {
				t.Errorf("Mark with token %d: %v", token, err)
			}
		}
		if err := check(7); err != nil {
			t.Errorf("Check with the token that was marked: %v", err)
		}
		for name, err := range map[string]error{"Mark": f.table.Mark(ctx, d.db, id, 6), "Check": check(6)} {
			if stale, ok := errors.AsType[*fence.StaleError](err); !ok || *stale != (fence.StaleError{Resource: id, Token: 6, Seen: 7}) || !errors.Is(err, fence.ErrStale) {
				t.Errorf("%s with token 6 after 7: %v, want that it is stale", name, err)
			}
		}
		// The same for a row that has its token.
		unmarked := func(row string) map[string]error {
			return map[string]error{
				"Check": within(func(tx *sql.Tx) error { return f.rows.Check(ctx, tx, row, 5) }),
				"Set":   f.rows.Set(ctx, d.db, row, 5, map[string]any{"balance": 1}),
			}
		}
		for _, row := range []string{"nobody", id} { // a missing row and an unmarked row
			for name, err := range unmarked(row) {
				if !errors.Is(err, fence.ErrMissing) {
					t.Errorf("%s of the row %q: %v, want ErrMissing", name, row, err)
				}
			}
		}
		if err := f.rows.Mark(ctx, d.db, "nobody", 5); !errors.Is(err, fence.ErrMissing) {
			t.Errorf("Mark of a row that does not exist: %v, want ErrMissing", err)
		}
		if n := d.balance(t, id); n != 0 {
			t.Errorf("the balance is %d, want 0: a Set of a row that was never marked must write nothing", n)
		}
		if err := f.rows.Mark(ctx, d.db, id, 7); err != nil {
			t.Errorf("Mark: %v", err)
		}
		if err := f.rows.Set(ctx, d.db, id, 7, map[string]any{"balance": 70}); err != nil {
			t.Errorf("Set: %v", err)
		}
		for name, err := range map[string]error{
			"Mark":  f.rows.Mark(ctx, d.db, id, 6),
			"Check": within(func(tx *sql.Tx) error { return f.rows.Check(ctx, tx, id, 6) }),
			"Set":   f.rows.Set(ctx, d.db, id, 6, map[string]any{"balance": 60}),
		} {
			if stale, ok := errors.AsType[*fence.StaleError](err); !ok || stale.Token != 6 || stale.Seen != 7 {
				t.Errorf("%s of a row with token 6 after 7: %v, want that it is stale", name, err)
			}
		}
		if n := d.balance(t, id); n != 70 {
			t.Errorf("the balance is %d, want 70: a stale Set must write nothing", n)
		}
	})
}

// A mark counts from its commit on, and a transaction that is rolled back has marked nothing.
func TestMarkOfATransactionEndsWithIt(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		f, ctx := d.migrate(t), t.Context()
		tx, err := d.db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.table.Mark(ctx, tx, "rolled back", 9); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := f.table.Mark(ctx, d.db, "rolled back", 8); err != nil {
			t.Errorf("Mark with 8 after a Mark with 9 that was rolled back: %v", err)
		}
	})
}

// Names that differ in case or in trailing blanks are different resources, in any collation.
func TestResourcesAreToldApart(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		f, ctx := d.migrate(t), t.Context()
		if err := f.table.Mark(ctx, d.db, "Apart", 9); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"apart", "Apart ", "Äpart", "' OR 1=1 --", strings.Repeat("x", 255)} {
			if err := f.table.Mark(ctx, d.db, name, 1); err != nil {
				t.Errorf("Mark of %q: %v", name, err)
			}
		}
	})
}

func TestDriversErrorsAreFound(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		d.migrate(t)
		table, err := fence.NewSQL(d.dialect, "not_there")
		if err != nil {
			t.Fatal(err)
		}
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
		rows, err := fence.NewRows(d.dialect, fence.Columns{Table: "nullable", Key: "id", Token: "fence"})
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{
			"CREATE TABLE nullable (id INTEGER NOT NULL PRIMARY KEY, fence BIGINT, written BIGINT)",
			"INSERT INTO nullable (id) VALUES (1)",
		} {
			if _, err := d.db.ExecContext(ctx, statement); err != nil {
				t.Fatal(err)
			}
		}
		set := func() error { return rows.Set(ctx, d.db, 1, 5, map[string]any{"written": 5}) }
		if err := set(); !errors.Is(err, fence.ErrMissing) {
			t.Errorf("Set before Mark: %v, want ErrMissing", err)
		}
		var token, written sql.NullInt64
		if err := d.db.QueryRowContext(ctx, "SELECT fence, written FROM nullable").Scan(&token, &written); err != nil || token.Valid || written.Valid {
			t.Errorf("Set before Mark has left the token %v and the value %v, %v: want both NULL", token, written, err)
		}
		if err := errors.Join(rows.Mark(ctx, d.db, 1, 5), set()); err != nil {
			t.Errorf("Mark and Set: %v", err)
		}
	})
}

// tracing wraps a transaction, like packages for tracing and mapping.
type tracing struct{ *sql.Tx }

func TestCheckOutsideATransactionIsRefused(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		f, ctx := d.migrate(t), t.Context()
		conn, err := d.db.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, tx := range []fence.DB{d.db, conn, struct{ *sql.DB }{d.db}} {
			if err := f.table.Check(ctx, tx, "x", 1); err == nil || !strings.Contains(err.Error(), "*sql.Tx") {
				t.Errorf("Check of a %T: %v, want what to use instead", tx, err)
			}
			if err := f.rows.Check(ctx, tx, "x", 1); err == nil || !strings.Contains(err.Error(), "*sql.Tx") {
				t.Errorf("Check of a row with a %T: %v, want what to use instead", tx, err)
			}
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		tx, err := d.db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback() //nolint:errcheck // it has only looked
		if err := f.table.Check(ctx, tracing{tx}, "never marked", 1); !errors.Is(err, fence.ErrMissing) {
			t.Errorf("Check of a transaction inside another type: %v, want that it asks", err)
		}
	})
}
