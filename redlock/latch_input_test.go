package redlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// latchCalls are all calls of a latch.
var latchCalls = map[string]func(ctx context.Context, l latch) error{
	"Done":  func(ctx context.Context, l latch) error { return l.Done(ctx, "a") },
	"Wait":  func(ctx context.Context, l latch) error { return l.Wait(ctx) },
	"Count": func(ctx context.Context, l latch) error { _, err := l.Count(ctx); return err },
}

func TestALatchRefusesBadInputAtOnce(t *testing.T) {
	for what, tt := range map[string]struct {
		name string
		n    int
		opts []quorumlock.Option
		want string
	}{
		"n of 0":              {"x", 0, nil, `Latch("x", 0): n is how many ids open the latch: use 1 to 4096`},
		"a negative n":        {"x", -1, nil, "use 1 to 4096"},
		"a large n":           {"x", 4097, nil, "use 1 to 4096"},
		"no name":             {"", 1, nil, "the name of the lock is empty"},
		"a long name":         {strings.Repeat("x", 1025), 1, nil, "has 1025 bytes with its prefix: use at most 1024"},
		"a long prefix":       {"xy", 1, []quorumlock.Option{quorumlock.WithPrefix(strings.Repeat("x", 1023))}, "has 1025 bytes with its prefix: use at most 1024"},
		"a name of its keys":  {"quorumlock_latch:{x}", 1, nil, `begins with "quorumlock_"`},
		"a short retention":   {"x", 1, []quorumlock.Option{quorumlock.WithRetention(time.Second)}, "WithRetention(1s): use 1m0s to"},
		"an endless one":      {"x", 1, []quorumlock.Option{quorumlock.WithRetention(1 << 62)}, "WithRetention("},
		"a label":             {"x", 1, []quorumlock.Option{quorumlock.WithLabel("other")}, "WithLabel is for"},
		"an impossible count": {"x", 1, []quorumlock.Option{quorumlock.WithQuorum(9)}, "WithQuorum"},
	} {
		for call, do := range latchCalls {
			t.Run(what+"/"+call, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, servers := locktest.Client(t, 3)
					_, nodes := locktest.Paths(t, servers[:1])
					for _, l := range []latch{c.Latch(tt.name, tt.n, tt.opts...), nodes[0].Latch(tt.name, tt.n, tt.opts...)} {
						err := do(t.Context(), l)
						if err == nil || !strings.HasPrefix(err.Error(), "quorumlock: ") || !strings.Contains(err.Error(), tt.want) {
							t.Errorf("%v, want %q", err, tt.want)
						}
					}
					if n := ranAll(servers); n > 0 {
						t.Errorf("%d scripts were sent, want none", n)
					}
				})
			})
		}
	}
}

func TestALatchRefusesBadIDsAndContextsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		l := c.Latch("x", 1)
		for _, id := range []string{"", strings.Repeat("i", 201)} {
			if err := l.Done(t.Context(), id); err == nil || !strings.Contains(err.Error(), "the id has") || !strings.Contains(err.Error(), "use 1 to 200") {
				t.Errorf("Done with an id of %d bytes: %v", len(id), err)
			}
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for call, do := range latchCalls {
			if err := do(nil, l); !errors.Is(err, quorumlock.ErrNilContext) { //nolint:staticcheck // that is what is tested
				t.Errorf("%s(nil): %v, want ErrNilContext", call, err)
			}
			if err := do(over, l); !errors.Is(err, context.Canceled) {
				t.Errorf("%s with a ctx that is done: %v, want Canceled", call, err)
			}
		}
		if n := ranAll(servers); n > 0 {
			t.Errorf("%d scripts were sent, want none", n)
		}
		done(t, l, strings.Repeat("i", 200))
		done(t, c.Latch(strings.Repeat("x", 1024), 4096), "a")
	})
}

func TestAMismatchNamesBothNumbers(t *testing.T) {
	for call, do := range latchCalls {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 3)
				done(t, c.Latch("x", 3), "a")
				began := time.Now()
				d, _ := locktest.Another(t, servers)
				err := do(t.Context(), d.Latch("x", 5))
				if !errors.Is(err, quorumlock.ErrLatchMismatch) || !strings.Contains(err.Error(), "5 here, and 3 at the node") {
					t.Errorf("%v, want ErrLatchMismatch with 5 and 3", err)
				}
				if time.Since(began) > 0 {
					t.Errorf("it took %v", time.Since(began))
				}
				counts(t, c.Latch("x", 3), 1)
			})
		})
	}
}

// A node with another n costs its vote. The latch works at the others.
func TestAMismatchAtAMinorityCostsItsVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 3)
		c, paths := locktest.Another(t, servers)
		kill(paths[1:]...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Latch("x", 5).Done(ctx, "a"); err == nil {
			t.Error("Done at one node of three succeeds")
		}
		d, _ := locktest.Another(t, servers)
		l := d.Latch("x", 1)
		done(t, l, "b")
		isOpen(t, l)
		locktest.Each(paths, func(s *embedded.Server) { s.Restart(true) })
		if err := c.Latch("x", 5).Done(t.Context(), "a"); !errors.Is(err, quorumlock.ErrLatchMismatch) {
			t.Errorf("%v, want ErrLatchMismatch", err)
		}
	})
}

func TestAKindOnTheNameOfAnotherIsRefusedAndChangesNothing(t *testing.T) {
	type put func(t *testing.T, c *redlock.Client, servers []*embedded.Server)
	for what, tt := range map[string]struct {
		put  put
		want string
	}{
		"a held mutex": {func(t *testing.T, c *redlock.Client, _ []*embedded.Server) { locktest.Lock(t, c.Mutex("x")) }, "is a mutex or a read-write lock:"},
		"a free mutex": {func(t *testing.T, c *redlock.Client, _ []*embedded.Server) {
			locktest.Unlock(t, locktest.Lock(t, c.Mutex("x")))
		}, "a mutex or a read-write lock that was locked within the last day"},
		"Redisson's RCountDownLatch": {func(_ *testing.T, _ *redlock.Client, servers []*embedded.Server) {
			locktest.Each(servers, func(s *embedded.Server) { _ = s.Redis.Set("x", "3") })
		}, "the countdown latch of Redisson's"},
	} {
		for call, do := range latchCalls {
			if call == "Count" && what == "a free mutex" {
				continue // it makes no latch, so there is nothing to refuse
			}
			t.Run(call+" of "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, servers := locktest.Client(t, 3)
					tt.put(t, c, servers)
					synctest.Wait()
					before := servers[0].Redis.Dump()
					err := do(t.Context(), c.Latch("x", 2))
					if !errors.Is(err, quorumlock.ErrWrongKind) || !strings.Contains(err.Error(), "used as a latch") || !strings.Contains(err.Error(), tt.want) {
						t.Errorf("%v, want ErrWrongKind with both kinds", err)
					}
					if after := servers[0].Redis.Dump(); after != before {
						t.Errorf("it changed\n%s\nto\n%s", before, after)
					}
				})
			})
		}
	}
	for call, do := range lockCalls {
		t.Run(call+" of a latch", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 3)
				done(t, c.Latch("x", 2), "a")
				synctest.Wait()
				_, nodes := locktest.Paths(t, servers[:1])
				before := servers[0].Redis.Dump()
				err := do(t.Context(), c, nodes[0], "x")
				if !errors.Is(err, quorumlock.ErrWrongKind) || !errors.Is(err, quorumlock.ErrNotALock) || !strings.Contains(err.Error(), "used as a mutex, and is a latch") {
					t.Errorf("%v, want ErrWrongKind with both kinds", err)
				}
				time.Sleep(2 * time.Second) // for what is given back
				locktest.Each(servers, func(s *embedded.Server) { s.Redis.Del("redisson_lock_token:{other}") })
				if after := servers[0].Redis.Dump(); after != before {
					t.Errorf("it changed\n%s\nto\n%s", before, after)
				}
				counts(t, c.Latch("x", 2), 1)
			})
		})
	}
}

func TestWithWaitBoundsALatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3, quorumlock.WithWait(time.Minute))
		l := c.Latch("x", 3)
		done(t, l, "a", "b")
		began := time.Now()
		err := l.Wait(t.Context())
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `the latch "x" has 2 of 3 ids`) {
			t.Errorf("Wait: %v, want DeadlineExceeded and what is missing", err)
		}
		kill(servers...)
		if err := l.Done(t.Context(), "c"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Done: %v, want DeadlineExceeded", err)
		}
		if took := time.Since(began); took != 2*time.Minute {
			t.Errorf("they took %v, want a minute each", took)
		}
	})
}

// Calls that wait, calls to nodes that do not answer, and calls that come later end with ErrClosed, and nothing is left.
func TestALatchEndsWithItsClient(t *testing.T) {
	for how, end := range map[string]func(t *testing.T, c *redlock.Client) error{
		"Close":    func(_ *testing.T, c *redlock.Client) error { return c.Close() },
		"Shutdown": func(t *testing.T, c *redlock.Client) error { return c.Shutdown(t.Context()) },
	} {
		for _, at := range []string{"waiting", "frozen", "dead"} {
			t.Run(how+" while "+at, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					servers, _ := locktest.Nodes(t, 3)
					c, paths := locktest.Another(t, servers)
					switch at {
					case "frozen":
						warm(t, c)
						locktest.Each(paths, (*embedded.Server).Stall)
					case "dead":
						kill(paths...)
					}
					got := awaits(t, c.Latch("x", 2))
					ends := make(chan error, 1)
					if at != "waiting" {
						go func() { ends <- c.Latch("x", 2).Done(t.Context(), "a") }()
						time.Sleep(10 * time.Millisecond)
					}
					began := time.Now()
					if err := end(t, c); err != nil {
						t.Errorf("%s: %v", how, err)
					}
					if took := time.Since(began); took > time.Second {
						t.Errorf("%s took %v, want the node timeout at most", how, took)
					}
					if err := <-got; !errors.Is(err, quorumlock.ErrClosed) {
						t.Errorf("Wait: %v, want ErrClosed", err)
					}
					if at != "waiting" {
						if err := <-ends; !errors.Is(err, quorumlock.ErrClosed) {
							t.Errorf("Done: %v, want ErrClosed", err)
						}
					}
					for call, do := range latchCalls {
						if err := do(t.Context(), c.Latch("x", 2)); !errors.Is(err, quorumlock.ErrClosed) {
							t.Errorf("%s after %s: %v, want ErrClosed", call, how, err)
						}
					}
					if left := locktest.Goroutines(); len(left) > 0 {
						t.Errorf("goroutines are left:\n%s", strings.Join(left, "\n\n"))
					}
					locktest.Each(paths, (*embedded.Server).Resume)
				})
			})
		}
	}
}

// A Wait whose ctx ends leaves no subscription and no goroutine.
func TestACancelledWaitLeavesNothingButTheLatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() { got <- c.Latch("x", 2).Wait(ctx) }()
		time.Sleep(time.Second)
		began := time.Now()
		cancel()
		if err := <-got; !errors.Is(err, context.Canceled) || time.Since(began) > 0 {
			t.Errorf("Wait: %v after %v, want Canceled at once", err, time.Since(began))
		}
		time.Sleep(quorumlock.DefaultRetention)
		locktest.Nothing(t, servers)
	})
}
