//go:build unix

package fencing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/fence"
)

// Holders write at the same time, as if no lock kept them apart. Each begins a term with the
// highest token so far, and still writes after the next has begun. The fence alone puts their
// writes in order.
func TestWritersAtTheSameTimeAreKeptInOrder(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		f := d.migrate(t)
		for _, level := range d.levels {
			for name, with := range map[string]int{"by table": byTable, "by row": byRow, "table.RunInTx": inTableTx, "rows.RunInTx": inRowTx} {
				if with >= inTableTx && level != d.levels[0] {
					continue // they have the level of the database
				}
				t.Run(fmt.Sprintf("%v, %s", level, name), func(t *testing.T) {
					w := &writers{t: t, d: d, fence: f, level: level, with: with, account: fmt.Sprintf("%v %s", level, name)}
					w.run()
					if w.disorder != 0 {
						t.Errorf("%d writes came after one with a higher token", w.disorder)
					}
					if w.balance != w.committed || w.journal != w.committed {
						t.Errorf("the balance is %d and the journal has %d rows after %d writes that each added one", w.balance, w.journal, w.committed)
					}
					if w.stale == 0 || w.committed == 0 {
						t.Errorf("%d writes were refused and %d committed: the test tests nothing", w.stale, w.committed)
					}
				})
			}
		}
	})
}

// Without a fence, writes come out of order, or are overwritten.
func TestWritersAtTheSameTimeDoHarmWithoutAFence(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		w := &writers{t: t, d: d, fence: d.migrate(t), level: d.levels[0], with: unfenced, account: "at the same time"}
		w.run()
		if w.disorder == 0 && w.balance == w.committed {
			t.Error("no write came out of order, and none was lost: the test tests nothing")
		}
		t.Logf("%d of %d writes came after one with a higher token, and %d were lost", w.disorder, w.committed, w.committed-w.balance)
	})
}

type writers struct {
	t       *testing.T
	d       *database
	fence   fences
	level   sql.IsolationLevel
	with    int
	account string

	stale     int64 // writes that were refused
	committed int64
	journal   int64 // writes that the journal has
	disorder  int64 // those of them that came after one with a higher token
	balance   int64
}

func (w *writers) run() {
	w.d.open(w.t, w.account)
	var token, stale, committed atomic.Int64
	var terms sync.WaitGroup
	for writer := range 4 {
		terms.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(writer), 2))
			for range 15 {
				mine := uint64(token.Add(1))
				err := w.d.insist(func() error { return w.fence.mark(w.t.Context(), w.d.db, w.with, w.account, mine) })
				for n := 0; n < 4 && err == nil; n++ {
					time.Sleep(time.Duration(rng.IntN(2000)) * time.Microsecond)
					if err = w.d.insist(func() error { return w.write(mine) }); err == nil {
						committed.Add(1)
					}
				}
				switch {
				case errors.Is(err, fence.ErrStale):
					stale.Add(1)
				case err != nil:
					w.t.Errorf("token %d: %v", mine, err)
				}
			}
		})
	}
	terms.Wait()
	w.stale, w.committed, w.balance = stale.Load(), committed.Load(), w.d.balance(w.t, w.account)
	w.read()
}

// write reads the balance after the check, and writes one more. That is right only after all
// earlier writes.
func (w *writers) write(token uint64) error {
	ctx := w.t.Context()
	switch in := fence.NewContext(ctx, token); w.with {
	case inTableTx:
		return w.fence.table.RunInTx(in, w.d.db, w.account, func(tx *sql.Tx) error { return w.add(ctx, tx, token) })
	case inRowTx:
		return w.fence.rows.RunInTx(in, w.d.db, w.account, func(tx *sql.Tx) error { return w.add(ctx, tx, token) })
	}
	tx, err := w.d.db.BeginTx(ctx, &sql.TxOptions{Isolation: w.level})
	if err != nil {
		return err
	}
	if err := w.add(ctx, tx, token); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (w *writers) add(ctx context.Context, tx *sql.Tx, token uint64) error {
	if err := w.fence.check(ctx, tx, w.with, w.account, token); err != nil {
		return err
	}
	var balance int64
	if err := tx.QueryRowContext(ctx, w.d.bind("SELECT balance FROM accounts WHERE id = ?"), w.account).Scan(&balance); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, w.d.bind("INSERT INTO journal (account, token) VALUES (?, ?)"), w.account, int64(token)); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, w.d.bind("UPDATE accounts SET balance = ? WHERE id = ?"), balance+1, w.account)
	return err
}

// read compares the journal's order with that of the tokens.
func (w *writers) read() {
	rows, err := w.d.db.QueryContext(w.t.Context(), w.d.bind("SELECT token FROM journal WHERE account = ? ORDER BY id"), w.account)
	must(w.t, err)
	defer rows.Close() //nolint:errcheck // all is read
	var highest int64
	for rows.Next() {
		var token int64
		must(w.t, rows.Scan(&token))
		w.journal++
		if token < highest {
			w.disorder++
		}
		highest = max(highest, token)
	}
	must(w.t, rows.Err())
}
