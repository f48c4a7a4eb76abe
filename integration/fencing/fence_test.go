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
		for name, err := range map[string]error{
			"Mark":  f.rows.Mark(ctx, d.db, "nobody", 5),
			"Check": within(func(tx *sql.Tx) error { return f.rows.Check(ctx, tx, "nobody", 5) }),
			"Set":   f.rows.Set(ctx, d.db, "nobody", 5, map[string]any{"balance": 1}),
		} {
			if !errors.Is(err, fence.ErrMissing) {
				t.Errorf("%s of a row that does not exist: %v, want ErrMissing", name, err)
			}
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

// Names that differ in case or in trailing blanks are different resources, whatever the collation.
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

func TestCheckOutsideATransactionIsRefused(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		f := d.migrate(t)
		if err := f.table.Check(t.Context(), d.db, "x", 1); err == nil || !strings.Contains(err.Error(), "*sql.Tx") {
			t.Errorf("Check of a *sql.DB: %v, want what to use instead", err)
		}
		if err := f.rows.Check(t.Context(), d.db, "x", 1); err == nil || !strings.Contains(err.Error(), "*sql.Tx") {
			t.Errorf("Check of a row with a *sql.DB: %v, want what to use instead", err)
		}
	})
}
