package redisson_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/proof/redisson"
	"github.com/quorumlock/quorumlock/redlock"
)

// goKind is a kind of this library. An election is a mutex.
type goKind struct {
	take   func(t *testing.T, c *redlock.Client) *quorumlock.Lease // nil for a latch
	sorted bool                                                    // its key is a sorted set
}

var goKinds = map[string]goKind{
	"Mutex":        {func(t *testing.T, c *redlock.Client) *quorumlock.Lease { return testkit.MustLock(t, c.Mutex("x")) }, false},
	"RWMutex.Lock": {func(t *testing.T, c *redlock.Client) *quorumlock.Lease { return testkit.MustLock(t, c.RWMutex("x")) }, false},
	"RWMutex.RLock": {func(t *testing.T, c *redlock.Client) *quorumlock.Lease {
		return testkit.MustLock(t, c.RWMutex("x").RLocker())
	}, false},
	"Semaphore": {func(t *testing.T, c *redlock.Client) *quorumlock.Lease {
		return testkit.MustLock(t, c.Semaphore("x", 2))
	}, true},
	"Latch": {func(t *testing.T, c *redlock.Client) *quorumlock.Lease {
		testkit.Done(t, c.Latch("x", 2), "a")
		return nil
	}, false},
	"open Latch": {func(t *testing.T, c *redlock.Client) *quorumlock.Lease {
		testkit.Done(t, c.Latch("x", 2), "a", "b")
		return nil
	}, false},
}

// tried unlocks a lease, if there is one, and returns err.
func tried(lease *quorumlock.Lease, err error) error {
	if err == nil {
		_ = lease.Unlock(context.Background())
	}
	return err
}

// javaCall is a call of Redisson's. Calls without a result return true.
type javaCall func(ctx context.Context, c *redisson.Client) (bool, error)

// javaKind is a kind of Redisson's.
type javaKind struct {
	make  javaCall   // acquires, or puts permits or a count; false if something is there
	uses  []javaCall // other calls that write
	is    string     // the kind of its key: a lock, a read-write lock, a string or a group
	tries bool       // make only looks whether there is a key
	force javaCall
}

func lockKind(is string, of func(c *redisson.Client) *redisson.Lock) javaKind {
	return javaKind{
		make:  func(ctx context.Context, c *redisson.Client) (bool, error) { return of(c).TryLock(ctx) },
		uses:  []javaCall{func(ctx context.Context, c *redisson.Client) (bool, error) { return true, of(c).Unlock(ctx) }},
		force: func(ctx context.Context, c *redisson.Client) (bool, error) { return of(c).ForceUnlock(ctx) },
		is:    is,
	}
}

var javaKinds = map[string]javaKind{
	"RLock":       lockKind("lock", func(c *redisson.Client) *redisson.Lock { return c.Lock("x") }),
	"RFairLock":   lockKind("lock", func(c *redisson.Client) *redisson.Lock { return c.FairLock("x") }),
	"RSpinLock":   lockKind("lock", func(c *redisson.Client) *redisson.Lock { return c.SpinLock("x") }),
	"RFencedLock": lockKind("lock", func(c *redisson.Client) *redisson.Lock { return c.FencedLock("x") }),
	"readLock":    lockKind("read-write lock", func(c *redisson.Client) *redisson.Lock { return c.ReadLock("x") }),
	"writeLock":   lockKind("read-write lock", func(c *redisson.Client) *redisson.Lock { return c.WriteLock("x") }),
	"RSemaphore": {
		make: func(ctx context.Context, c *redisson.Client) (bool, error) {
			return c.Semaphore("x").TrySetPermits(ctx, 3)
		},
		uses: []javaCall{
			func(ctx context.Context, c *redisson.Client) (bool, error) { return c.Semaphore("x").TryAcquire(ctx) },
			func(ctx context.Context, c *redisson.Client) (bool, error) {
				return true, c.Semaphore("x").Release(ctx)
			},
		},
		is: "string",
	},
	"RPermitExpirableSemaphore": {
		make: func(ctx context.Context, c *redisson.Client) (bool, error) {
			return c.PermitExpirableSemaphore("x").TrySetPermits(ctx, 3)
		},
		uses: []javaCall{
			func(ctx context.Context, c *redisson.Client) (bool, error) {
				return c.PermitExpirableSemaphore("x").TryAcquire(ctx)
			},
		},
		is: "string",
	},
	"RCountDownLatch": {
		make: func(ctx context.Context, c *redisson.Client) (bool, error) {
			return c.CountDownLatch("x").TrySetCount(ctx, 3)
		},
		uses: []javaCall{func(ctx context.Context, c *redisson.Client) (bool, error) {
			return true, c.CountDownLatch("x").CountDown(ctx)
		}},
		is:    "string",
		tries: true,
	},
}

// stored returns the value of the name's key at a server, without its TTL.
func stored(server *miniredis.Miniredis) string {
	all := strings.Split(server.Dump(), "\n")
	from := slices.Index(all, "- x")
	if from < 0 {
		return ""
	}
	to := from + 1
	for to < len(all) && strings.HasPrefix(all[to], "   ") {
		to++
	}
	return strings.Join(all[from:to], "\n")
}

// While Go has a name, no kind of Redisson's enters, and none changes or deletes the key. The only
// exceptions are the calls that delete a key of any kind.
func TestNoKindOfRedissonsEntersOneOfGos(t *testing.T) {
	t.Parallel()
	for ours, g := range goKinds {
		for theirs, j := range javaKinds {
			t.Run(theirs+" on a "+ours, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, servers := testkit.Client(t, 1)
					java := jvm(t, servers)[0]
					lease := g.take(t, c)
					before, ctx := stored(servers[0].Redis), t.Context()
					entered, err := j.make(ctx, java)
					if wrong := g.sorted && !j.tries || j.is == "string" && !j.tries; entered || wrong != isWrongType(err) || !wrong && err != nil {
						t.Errorf("it enters: %v, %v, want WRONGTYPE: %v", entered, err, wrong)
					}
					for _, use := range j.uses {
						if _, err := use(ctx, java); !isWrongType(err) && !errors.Is(err, redisson.ErrNotHeld) {
							t.Errorf("it writes: %v", err)
						}
					}
					if after := stored(servers[0].Redis); after != before {
						t.Errorf("it changed\n%s\nto\n%s", before, after)
					}
					if lease != nil {
						if err := lease.Extend(ctx); err != nil {
							t.Error(err)
						}
					}
					if j.force == nil {
						return
					}
					forced, err := j.force(ctx, java)
					if deletes := j.is == "lock"; forced != deletes || err != nil && !(g.sorted && isWrongType(err)) {
						t.Errorf("forceUnlock: %v, %v, want %v", forced, err, deletes)
					}
					if there := servers[0].Redis.Exists("x"); there != (j.is != "lock") {
						t.Errorf("after forceUnlock there is a key: %v", there)
					}
				})
			})
		}
	}
}

func isWrongType(err error) bool { return err != nil && strings.Contains(err.Error(), "WRONGTYPE") }

// While Redisson has a name, no kind of Go's enters, and none changes or deletes the key.
func TestNoKindOfGosEntersOneOfRedissons(t *testing.T) {
	t.Parallel()
	calls := map[string]func(ctx context.Context, c *redlock.Client) error{
		"Mutex":         func(ctx context.Context, c *redlock.Client) error { return tried(c.Mutex("x").TryLock(ctx)) },
		"RWMutex.Lock":  func(ctx context.Context, c *redlock.Client) error { return tried(c.RWMutex("x").TryLock(ctx)) },
		"RWMutex.RLock": func(ctx context.Context, c *redlock.Client) error { return tried(c.RWMutex("x").TryRLock(ctx)) },
		"Semaphore": func(ctx context.Context, c *redlock.Client) error {
			return tried(c.Semaphore("x", 2).TryLock(ctx))
		},
		"Latch": func(ctx context.Context, c *redlock.Client) error { return c.Latch("x", 2).Done(ctx, "a") },
	}
	for theirs, j := range javaKinds {
		for ours, call := range calls {
			t.Run(ours+" on a "+theirs, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, servers := testkit.Client(t, 1)
					if made, err := j.make(t.Context(), jvm(t, servers)[0]); !made || err != nil {
						t.Fatal(made, err)
					}
					before := stored(servers[0].Redis)
					want := quorumlock.ErrWrongKind
					if j.is == "lock" && (ours == "Mutex" || strings.HasPrefix(ours, "RWMutex")) {
						want = quorumlock.ErrHeld
					}
					err := call(t.Context(), c)
					if !errors.Is(err, want) {
						t.Errorf("%v, want %v", err, want)
					}
					if lock := ours != "Latch"; want == quorumlock.ErrWrongKind && errors.Is(err, quorumlock.ErrNotALock) != lock {
						t.Errorf("%v is ErrNotALock: %v, want %v", err, !lock, lock)
					}
					if j.is != "lock" { // by force, either
						if err := c.ForceUnlock(t.Context(), "x"); !errors.Is(err, want) {
							t.Errorf("ForceUnlock: %v, want %v", err, want)
						}
					}
					time.Sleep(time.Second) // for pending releases
					if after := stored(servers[0].Redis); after != before {
						t.Errorf("it changed\n%s\nto\n%s", before, after)
					}
				})
			})
		}
	}
}

// A lock of a group of values enters the hash of a Go lock or latch, since it looks only at its own
// fields. Neither takes anything from the other.
func TestALockOfAGroupEntersAndTakesNothing(t *testing.T) {
	t.Parallel()
	for ours, g := range goKinds {
		t.Run(ours, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := testkit.Client(t, 1)
				group := jvm(t, servers)[0].GroupLock("x", "value")
				lease, ctx := g.take(t, c), t.Context()
				before := stored(servers[0].Redis)
				entered, err := group.TryLock(ctx)
				if g.sorted {
					if entered || !isWrongType(err) {
						t.Errorf("it enters: %v, %v, want WRONGTYPE", entered, err)
					}
					return
				}
				if !entered || err != nil {
					t.Errorf("it enters: %v, %v", entered, err)
				}
				if lease != nil {
					time.Sleep(2 * quorumlock.DefaultTTL)
					testkit.Held(t, lease)
				}
				if err := group.Unlock(ctx); err != nil {
					t.Error(err)
				}
				if after := stored(servers[0].Redis); lease == nil && after != before {
					t.Errorf("it changed\n%s\nto\n%s", before, after)
				}
			})
		})
	}
	t.Run("and keeps Go out", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			c, servers := testkit.Client(t, 1)
			if entered, err := jvm(t, servers)[0].GroupLock("x", "value").TryLock(t.Context()); !entered || err != nil {
				t.Fatal(entered, err)
			}
			for _, l := range []quorumlock.Locker{c.Mutex("x"), c.RWMutex("x"), c.RWMutex("x").RLocker(), c.Semaphore("x", 2)} {
				if _, err := l.TryLock(t.Context()); !errors.Is(err, quorumlock.ErrNotALock) {
					t.Errorf("%v, want ErrNotALock", err)
				}
			}
			if err := c.Latch("x", 2).Done(t.Context(), "a"); !errors.Is(err, quorumlock.ErrWrongKind) {
				t.Errorf("%v, want ErrWrongKind", err)
			}
		})
	})
}
