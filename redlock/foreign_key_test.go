package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// notALock reports whether an error says that a key is no lock. foreign_key_contract_test.go asks for ErrNotALock.
var notALock = func(err error) bool {
	return err != nil && !errors.Is(err, quorumlock.ErrHeld) && !errors.Is(err, context.DeadlineExceeded)
}

// foreign are keys of applications that are no locks. Those of a lock are a hash of one field, an owner, with a count.
var foreign = map[string]func(s *embedded.Server, key string){
	"string":                       func(s *embedded.Server, key string) { _ = s.Redis.Set(key, "mine") },
	"number":                       func(s *embedded.Server, key string) { _ = s.Redis.Set(key, "1") },
	"list":                         func(s *embedded.Server, key string) { _, _ = s.Redis.Push(key, "mine", "too") },
	"set":                          func(s *embedded.Server, key string) { _, _ = s.Redis.SetAdd(key, "mine", "too") },
	"zset":                         func(s *embedded.Server, key string) { _, _ = s.Redis.ZAdd(key, 1, "mine") },
	"hash {visits:5}":              func(s *embedded.Server, key string) { s.Redis.HSet(key, "visits", "5") },
	"hash {name:bob}":              func(s *embedded.Server, key string) { s.Redis.HSet(key, "name", "bob") },
	"hash of two counts":           func(s *embedded.Server, key string) { s.Redis.HSet(key, "visits", "5", "clicks", "7") },
	"hash of months":               func(s *embedded.Server, key string) { s.Redis.HSet(key, "2024/11", "3") },
	"hash of a user's name":        func(s *embedded.Server, key string) { s.Redis.HSet(key, "user:42", "bob") },
	"hash of two users' votes":     func(s *embedded.Server, key string) { s.Redis.HSet(key, "user:1", "3", "user:2", "4") },
	"hash of an owner and a field": func(s *embedded.Server, key string) { s.Redis.HSet(key, "user:1", "1", "name", "bob") },
}

// lockCalls are all calls that may meet a key that is no lock. Each gives back what it gets.
var lockCalls = map[string]func(ctx context.Context, c *redlock.Client, n *node.Node, name string) error{
	"Lock": func(ctx context.Context, c *redlock.Client, _ *node.Node, name string) error {
		return andBack(ctx)(c.Mutex(name).Lock(ctx))
	},
	"TryLock": func(ctx context.Context, c *redlock.Client, _ *node.Node, name string) error {
		return andBack(ctx)(c.Mutex(name).TryLock(ctx))
	},
	"ForceUnlock": func(ctx context.Context, c *redlock.Client, _ *node.Node, name string) error {
		return c.Mutex(name).ForceUnlock(ctx)
	},
	"Inspect": func(ctx context.Context, c *redlock.Client, _ *node.Node, name string) error {
		_, err := c.Mutex(name).Inspect(ctx)
		return err
	},
	"the client's Inspect": func(ctx context.Context, c *redlock.Client, _ *node.Node, name string) error {
		_, err := c.Inspect(ctx, name)
		return err
	},
	"Lock of a MultiLock": func(ctx context.Context, c *redlock.Client, _ *node.Node, name string) error {
		both, err := multilock.New([]quorumlock.Locker{c.Mutex("other"), c.Mutex(name)})
		if err != nil {
			return err
		}
		return andBack(ctx)(both.Lock(ctx))
	},
	"TryLock of a MultiLock": func(ctx context.Context, c *redlock.Client, _ *node.Node, name string) error {
		both, err := multilock.New([]quorumlock.Locker{c.Mutex("other"), c.Mutex(name)})
		if err != nil {
			return err
		}
		return andBack(ctx)(both.TryLock(ctx))
	},
	"Lock of a node's Mutex": func(ctx context.Context, _ *redlock.Client, n *node.Node, name string) error {
		return andBack(ctx)(n.Mutex(name).Lock(ctx))
	},
	"TryLock of a node's Mutex": func(ctx context.Context, _ *redlock.Client, n *node.Node, name string) error {
		return andBack(ctx)(n.Mutex(name).TryLock(ctx))
	},
	"ForceUnlock of a node's Mutex": func(ctx context.Context, _ *redlock.Client, n *node.Node, name string) error {
		return n.Mutex(name).ForceUnlock(ctx)
	},
	"Inspect of a node's Mutex": func(ctx context.Context, _ *redlock.Client, n *node.Node, name string) error {
		_, err := n.Mutex(name).Inspect(ctx)
		return err
	},
	"a node's Acquire": func(ctx context.Context, _ *redlock.Client, n *node.Node, name string) error {
		a, err := n.Acquire(ctx, name, "somebody:1", time.Second, 1)
		if err == nil && !a.Granted {
			return quorumlock.ErrHeld
		}
		return err
	},
	"a node's ForceRelease": func(ctx context.Context, _ *redlock.Client, n *node.Node, name string) error {
		_, err := transport.Of(n).ForceRelease(ctx, name)
		return err
	},
	"a node's Inspect": func(ctx context.Context, _ *redlock.Client, n *node.Node, name string) error {
		_, err := transport.Of(n).Inspect(ctx, name)
		return err
	},
}

func andBack(ctx context.Context) func(*quorumlock.Lease, error) error {
	return func(lease *quorumlock.Lease, err error) error {
		if err == nil {
			_ = lease.Unlock(ctx)
		}
		return err
	}
}

// What an application keeps at the name of a lock is its own. Every call says so at once, and does not wait for the key
// to go.
func TestAKeyThatIsNoLockIsReportedAtOnceAndLeftAlone(t *testing.T) {
	for kind, put := range foreign {
		for call, do := range lockCalls {
			for at, some := range map[string]int{"all nodes": 3, "a majority": 2} {
				t.Run(fmt.Sprintf("%s at a %s at %s", call, kind, at), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						c, servers := locktest.Client(t, 3)
						_, nodes := locktest.Paths(t, servers[:1])
						before := make([]string, len(servers))
						for i, s := range servers {
							if i < some {
								put(s, "x")
								s.Redis.SetTTL("x", 10*time.Hour)
							}
							before[i] = s.Redis.Dump()
						}
						ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
						defer cancel()
						began := time.Now()
						if err := do(ctx, c, nodes[0], "x"); !notALock(err) {
							t.Errorf("error %v, want one that says that it is no lock", err)
						}
						if took := time.Since(began); took > 100*time.Millisecond {
							t.Errorf("it took %v, want an answer at once", took)
						}
						time.Sleep(2 * time.Second) // for what is given back
						for i, s := range servers {
							s.Redis.Del(wire.TokenKey("x"))
							s.Redis.Del(wire.TokenKey("other"))
							if after := s.Redis.Dump(); after != before[i] {
								t.Errorf("%s has\n%s\nwant it as it was:\n%s", s.Name, after, before[i])
							}
							if ttl := s.Redis.TTL("x"); i < some && (ttl < 9*time.Hour || ttl > 10*time.Hour) {
								t.Errorf("%s expires the key in %v, want the 10 h that the application gave it", s.Name, ttl)
							}
						}
					})
				})
			}
		}
	}
}

// At a minority of the nodes it is a vote less. The lock works at the others: also for those who wait, and by force.
func TestAKeyThatIsNoLockAtAMinorityCostsItsVote(t *testing.T) {
	for kind, put := range foreign {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 3)
				other, _ := locktest.Another(t, servers)
				put(servers[0], "x")
				before := servers[0].Redis.Dump()
				lease := locktest.Lock(t, c.Mutex("x"))
				got := locktest.Waiter(t, other.Mutex("x"))
				time.Sleep(quorumlock.DefaultTTL)
				locktest.Held(t, lease)
				locktest.Unlock(t, lease)
				next := <-got
				if next == nil {
					t.FailNow()
				}
				if err := c.Mutex("x").ForceUnlock(t.Context()); err != nil && !notALock(err) {
					t.Errorf("ForceUnlock: %v", err)
				}
				if n := locktest.Holds(servers, "x", next.Owner()); n > 0 {
					t.Errorf("%d servers have the lock after ForceUnlock", n)
				}
				locktest.Lost(t, next, quorumlock.DefaultTTL)
				if err := next.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
					t.Errorf("Unlock: %v, want ErrLost", err)
				}
				time.Sleep(2 * time.Second)
				for _, s := range servers {
					s.Redis.Del(wire.TokenKey("x"))
				}
				if after := servers[0].Redis.Dump(); after != before {
					t.Errorf("%s has\n%s\nwant it as it was:\n%s", servers[0].Name, after, before)
				}
				servers[0].Redis.Del("x")
				locktest.NoLocks(t, servers)
			})
		})
	}
}

// What is a lock is freed by force: whoever holds it, and however often it was entered.
func TestForceUnlockFreesTheLockOfEveryOwner(t *testing.T) {
	for who, hold := range map[string]func(t *testing.T, c, other *redlock.Client, nodes []*node.Node){
		"acquired": func(t *testing.T, c, _ *redlock.Client, _ []*node.Node) { locktest.Lock(t, c.Mutex("x")) },
		"handed over": func(t *testing.T, c, other *redlock.Client, _ []*node.Node) {
			lease := locktest.Lock(t, c.Mutex("x"))
			got := locktest.Waiter(t, other.Mutex("x"))
			locktest.Unlock(t, lease)
			<-got
		},
		"entered thrice": func(t *testing.T, _, _ *redlock.Client, nodes []*node.Node) {
			for _, n := range nodes {
				for hold := 1; hold <= 3; hold++ {
					if a, err := n.Acquire(t.Context(), "x", "web-7.example~8743c9c0:42", time.Minute, hold); err != nil || !a.Granted {
						t.Fatalf("Acquire: %+v, %v", a, err)
					}
				}
			}
		},
	} {
		t.Run(who, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 3)
				other, _ := locktest.Another(t, servers)
				_, nodes := locktest.Paths(t, servers)
				hold(t, c, other, nodes)
				locktest.Refused(t, other.Mutex("x"))
				if in, err := other.Inspect(t.Context(), "x"); err != nil || !in.State.Held() {
					t.Errorf("Inspect: %+v, %v, want it held", in.State, err)
				}
				if err := other.Mutex("x").ForceUnlock(t.Context()); err != nil {
					t.Errorf("ForceUnlock: %v", err)
				}
				locktest.NoLocks(t, servers)
				if err := other.Mutex("x").ForceUnlock(t.Context()); err != nil {
					t.Errorf("ForceUnlock of a free lock: %v", err)
				}
			})
		})
	}
}

// The keys in which the library keeps a lock's token and queue are not names of locks: nothing is sent for them, and the
// lock that they belong to is not harmed.
func TestALockNamedLikeAKeyOfTheLibrarysOwnIsRefused(t *testing.T) {
	for _, name := range locktest.Thorough([]string{
		wire.TokenKey("x"), wire.QueueKey("x"), wire.EntriesKey("x"), wire.TokenKey("{x}y"), wire.QueueKey("{x}"),
		wire.EntriesKey("a{b}c"), wire.TokenKey(wire.TokenKey("x")), "quorumlock_promoted",
	}, []string{wire.QueueKey("x")}) {
		for call, do := range lockCalls {
			t.Run(fmt.Sprintf("%s of %s", call, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, servers := locktest.Client(t, 3)
					other, _ := locktest.Another(t, servers)
					paths, nodes := locktest.Paths(t, servers[:1])
					holder := locktest.Lock(t, other.Mutex("x"))
					third, _ := locktest.Another(t, servers)
					got := locktest.Waiter(t, third.Mutex("x"))
					before := counters(t, servers, "x")
					sent := ranAll(servers)

					ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
					defer cancel()
					err := do(ctx, c, nodes[0], name)
					switch {
					case err == nil:
						t.Error("no error")
					case errors.Is(err, quorumlock.ErrHeld) || errors.Is(err, context.DeadlineExceeded):
						t.Errorf("error %v, want one that refuses the name at once", err)
					case !strings.HasPrefix(err.Error(), "quorumlock: ") || !strings.Contains(err.Error(), name):
						t.Errorf("error %v, want one with the name in it", err)
					}
					if n := ranAll(servers) + ranAll(paths) - sent; n > 0 {
						t.Errorf("%d scripts were sent, want none", n)
					}

					if after := counters(t, servers, "x"); after != before {
						t.Errorf("the counters of x are %v, want %v as before", after, before)
					}
					in, err := other.Inspect(t.Context(), "x")
					if err != nil || in.State.Owner != holder.Owner() || len(in.State.Queue) != 1 {
						t.Errorf("Inspect of x: %+v, %v, want its holder and one who waits", in.State, err)
					}
					locktest.Unlock(t, holder)
					select {
					case lease := <-got:
						if lease != nil {
							locktest.Unlock(t, lease)
						}
					case <-time.After(2 * time.Second):
						t.Error("the one who waits for x has not got it in 2 s")
					}
				})
			})
		}
	}
}

// Names that only look similar are names like any other.
func TestALockNamedAlmostLikeAKeyOfTheLibrarysOwnWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		for _, name := range []string{"app:" + wire.QueueKey("x"), "my-" + wire.TokenKey("x"), "redisson_lock", "redisson", "quorumlock", "lock_token:{x}"} {
			for call, do := range lockCalls {
				_, nodes := locktest.Paths(t, servers[:1])
				if err := do(t.Context(), c, nodes[0], name); err != nil {
					t.Errorf("%s of %q: %v", call, name, err)
				}
				synctest.Wait()                                                        // Unlock does not wait for all nodes
				locktest.Each(servers, func(s *embedded.Server) { s.Redis.Del(name) }) // of the node's Acquire
			}
		}
		locktest.NoLocks(t, servers)
	})
}
