//go:build unix

package fencing

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/fence"
)

// schedules is how many each test tries.
const schedules = 1000

// protected is a resource of a schedule, which holders write their tokens to.
type protected interface {
	mark(token uint64) error
	// begin goes as far as a paused holder has come, and returns the rest of its write.
	begin(token uint64) (finish func() error, err error)
	value() int64
}

// play plays a random schedule: holders mark and write one after the other. One of them is paused
// before or in its last write, and continues when a later one has marked. play returns whether the
// late write was refused or, if not, whether it is the final value.
func play(t *testing.T, rng *rand.Rand, r protected) (refused, left bool) {
	t.Helper()
	var last uint64 // the token of the last write that was accepted
	write := func(token uint64) {
		finish, err := r.begin(token)
		if err == nil {
			err = finish()
		}
		if err != nil {
			t.Fatalf("the write of the present holder, with token %d: %v", token, err)
		}
		last = token
	}
	token := 1 + rng.Uint64N(1<<40)
	terms := 2 + rng.IntN(3)
	pausedIn := rng.IntN(terms - 1)
	goesOnIn := pausedIn + 1 + rng.IntN(terms-1-pausedIn)
	var late func() error
	var paused uint64
	resume := func() {
		err := late()
		switch {
		case err == nil:
			last = paused
		case errors.Is(err, fence.ErrStale):
			refused = true
			if stale, ok := errors.AsType[*fence.StaleError](err); !ok || stale.Token != paused || stale.Seen != token {
				t.Fatalf("the late write: %v, want token %d after %d", err, paused, token)
			}
		default:
			t.Fatalf("the late write: %v", err)
		}
		late = nil
	}
	for term := range terms {
		token += 1 + rng.Uint64N(3)
		if err := r.mark(token); err != nil {
			t.Fatalf("Mark of the present holder, with token %d: %v", token, err)
		}
		writes := rng.IntN(3)
		resumeAfter := -1
		if term == goesOnIn {
			resumeAfter = rng.IntN(writes + 1)
		}
		for n := range writes + 1 {
			if n == resumeAfter {
				resume()
			}
			if n < writes {
				write(token)
			}
		}
		if term == pausedIn {
			var err error
			if late, err = r.begin(token); err != nil {
				t.Fatal(err)
			}
			paused = token
		}
	}
	if v := r.value(); v != int64(last) {
		t.Fatalf("the value is %d, want that of the last write that was accepted, %d", v, last)
	}
	return refused, last == paused
}

// account is a row that is written in transactions.
type account struct {
	t     *testing.T
	d     *database
	fence fences
	rng   *rand.Rand
	id    string
	with  int // which of the ways to fence
}

func (a *account) mark(token uint64) error {
	return a.fence.mark(a.t.Context(), a.d.db, a.with, a.id, token)
}

func (a *account) begin(token uint64) (func() error, error) {
	ctx := a.t.Context()
	if a.with == bySet {
		return func() error {
			return a.d.insist(func() error {
				return a.fence.rows.Set(ctx, a.d.db, a.id, token, map[string]any{"balance": int64(token)})
			})
		}, nil
	}
	options := &sql.TxOptions{Isolation: a.d.levels[a.rng.IntN(len(a.d.levels))]}
	var open *sql.Tx
	if !a.d.serial && a.rng.IntN(2) == 0 {
		tx, err := a.d.db.BeginTx(ctx, options)
		if err != nil {
			return nil, err
		}
		open = tx
		// At some levels, this fixes the snapshot of the transaction.
		if a.rng.IntN(2) == 0 {
			var n int64
			if err := tx.QueryRowContext(ctx, "SELECT balance FROM accounts WHERE id = 'elsewhere'").Scan(&n); err != nil {
				return nil, errors.Join(err, tx.Rollback())
			}
		}
	}
	return func() error {
		return a.d.insist(func() error {
			tx := open
			open = nil // once more means from the start
			if tx == nil {
				var err error
				if tx, err = a.d.db.BeginTx(ctx, options); err != nil {
					return err
				}
			}
			if err := a.write(ctx, tx, token); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		})
	}, nil
}

func (a *account) write(ctx context.Context, tx *sql.Tx, token uint64) error {
	if err := a.fence.check(ctx, tx, a.with, a.id, token); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, a.d.bind("UPDATE accounts SET balance = ? WHERE id = ?"), int64(token), a.id)
	return err
}

func (a *account) value() int64 { return a.d.balance(a.t, a.id) }

// Without a fence, the same schedules do harm: so they do have late writes.
func TestLateWriteOfAPausedHolderIsRefusedInEverySchedule(t *testing.T) {
	for name, fenced := range map[string]bool{"fenced": true, "without a fence": false} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, d *database) {
				f := d.migrate(t)
				inEverySchedule(t, fenced, func(rng *rand.Rand, seed int) protected {
					a := &account{t: t, d: d, fence: f, rng: rng, id: fmt.Sprint(name, " ", seed), with: byTable + rng.IntN(3)}
					if !fenced {
						a.with = unfenced
					}
					d.open(t, a.id)
					return a
				})
			})
			t.Run("Redis", func(t *testing.T) {
				client, f := newRedis(t)
				inEverySchedule(t, fenced, func(_ *rand.Rand, seed int) protected {
					return &redisKey{t, client, f, fmt.Sprint(name, " ", seed), fenced}
				})
			})
		})
	}
}

// inEverySchedule plays all schedules, each with a resource of its own.
func inEverySchedule(t *testing.T, fenced bool, make func(rng *rand.Rand, seed int) protected) {
	t.Helper()
	harmed := 0
	for seed := range schedules {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		refused, left := play(t, rng, make(rng, seed))
		if refused != fenced {
			t.Fatalf("seed %d: the late write was refused: %v", seed, refused)
		}
		if left {
			harmed++
		}
	}
	if !fenced {
		harm(t, harmed)
	}
}

// harm checks that the schedules do harm often enough. Every late write is harm; harmed counts
// those that no later write has replaced.
func harm(t *testing.T, harmed int) {
	t.Helper()
	t.Logf("in %d of %d schedules, the value of the paused holder is what is left", harmed, schedules)
	if harmed < schedules/4 {
		t.Errorf("a late write is left in %d of %d schedules: they test too little", harmed, schedules)
	}
}

// redisKey is a key that is written by guarded scripts, or without a guard.
type redisKey struct {
	t      *testing.T
	client *redis.Client
	fence  *fence.Redis
	key    string
	fenced bool
}

func newRedis(t *testing.T) (*redis.Client, *fence.Redis) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: redisAddr})
	t.Cleanup(func() { _ = client.Close() })
	f, err := fence.NewRedis(client, 0)
	must(t, err)
	return client, f
}

func (k *redisKey) mark(token uint64) error {
	if !k.fenced {
		return nil
	}
	return k.fence.Mark(k.t.Context(), k.key, token)
}

func (k *redisKey) begin(token uint64) (func() error, error) {
	if !k.fenced {
		return func() error { return k.client.Set(k.t.Context(), k.key, token, 0).Err() }, nil
	}
	return func() error { return k.fence.Set(k.t.Context(), k.key, token, token, 0) }, nil
}

func (k *redisKey) value() int64 {
	n, err := k.client.Get(k.t.Context(), k.key).Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		k.t.Fatal(err)
	}
	return n
}
