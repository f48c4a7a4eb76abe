package names

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// user is a program under test: a client, and a node for the locks of one server.
type user struct {
	client *redlock.Client
	node   *node.Node
}

func newUser(t *testing.T, servers []*embedded.Server, opts ...quorumlock.Option) user {
	t.Helper()
	c, _ := testkit.Another(t, servers, opts...)
	_, nodes := testkit.Paths(t, servers[:1])
	return user{c, nodes[0]}
}

type call = func(ctx context.Context, u user, key string) error

// maker makes a lock. n is the number of permits, if any.
type maker = func(u user, key string, n int, opts ...quorumlock.Option) quorumlock.Locker

// acquires is a call of Lock, or of TryLock, that releases the lock again.
func acquires(of maker, try bool) call {
	return func(ctx context.Context, u user, key string) error { return acquire(ctx, of(u, key, 2), try) }
}

func acquire(ctx context.Context, l quorumlock.Locker, try bool) error {
	lock := l.Lock
	if try {
		lock = l.TryLock
	}
	lease, err := lock(ctx)
	if err == nil {
		_ = lease.Unlock(ctx)
	}
	return err
}

// owned is the error of a ForceUnlockOwner that may find its owner nowhere.
func owned(err error) error {
	if errors.Is(err, quorumlock.ErrNotHeld) {
		return nil
	}
	return err
}

func with(other, l quorumlock.Locker) quorumlock.Locker {
	m, err := multilock.New([]quorumlock.Locker{other, l})
	if err != nil {
		return failed{l, err}
	}
	return m
}

// failed is a lock that could not be made.
type failed struct {
	quorumlock.Locker
	err error
}

func (f failed) Lock(context.Context) (*quorumlock.Lease, error)    { return nil, f.err }
func (f failed) TryLock(context.Context) (*quorumlock.Lease, error) { return nil, f.err }

func mutex(u user, key string, _ int, opts ...quorumlock.Option) quorumlock.Locker {
	return u.client.Mutex(key, opts...)
}

func multi(u user, key string, _ int, opts ...quorumlock.Option) quorumlock.Locker {
	return with(u.client.Mutex("other"), u.client.Mutex(key, opts...))
}

func single(u user, key string, _ int, opts ...quorumlock.Option) quorumlock.Locker {
	return u.node.Mutex(key, opts...)
}

func reader(u user, key string, _ int, opts ...quorumlock.Option) quorumlock.Locker {
	return u.client.RWMutex(key, opts...).RLocker()
}

func writer(u user, key string, _ int, opts ...quorumlock.Option) quorumlock.Locker {
	return u.client.RWMutex(key, opts...)
}

func slot(u user, key string, n int, opts ...quorumlock.Option) quorumlock.Locker {
	return u.client.Semaphore(key, n, opts...)
}

// calls are all calls that may find a key of another kind, by the kind that they need. A read-write
// lock is a mutex for its writers.
var calls = map[string]map[string]call{
	"mutex": {
		"Lock": acquires(mutex, false), "TryLock": acquires(mutex, true), "MultiLock": acquires(multi, false), "TryLock of a MultiLock": acquires(multi, true),
		"RLock": acquires(reader, false), "TryRLock": acquires(reader, true), "TryLock of a writer": acquires(writer, true),
		"node's Lock": acquires(single, false), "node's TryLock": acquires(single, true),
		"Acquire": func(ctx context.Context, u user, key string) error {
			a, err := u.node.Acquire(ctx, key, "somebody:1", time.Second, 1)
			if err == nil && !a.Granted {
				return quorumlock.ErrHeld
			}
			if err == nil {
				_, err = u.node.Release(ctx, key, "somebody:1", 1)
			}
			return err
		},
	},
	"semaphore": {
		"Lock": acquires(slot, false), "TryLock": acquires(slot, true),
	},
	"mutex or semaphore": {
		"Inspect":            func(ctx context.Context, u user, key string) error { return testkit.Err(u.client.Inspect(ctx, key)) },
		"node's Inspect":     func(ctx context.Context, u user, key string) error { return testkit.Err(u.node.Inspect(ctx, key)) },
		"ForceUnlock":        func(ctx context.Context, u user, key string) error { return u.client.ForceUnlock(ctx, key) },
		"node's ForceUnlock": func(ctx context.Context, u user, key string) error { return u.node.ForceUnlock(ctx, key) },
		"ForceUnlockOwner": func(ctx context.Context, u user, key string) error {
			return owned(u.client.ForceUnlockOwner(ctx, key, "nobody:1"))
		},
		"node's ForceUnlockOwner": func(ctx context.Context, u user, key string) error {
			return owned(u.node.ForceUnlockOwner(ctx, key, "nobody:1"))
		},
	},
	"latch": {
		"Done": func(ctx context.Context, u user, key string) error { return u.client.Latch(key, 2).Done(ctx, "a") },
		"Wait": func(ctx context.Context, u user, key string) error { return u.client.Latch(key, 2).Wait(ctx) },
		"Count": func(ctx context.Context, u user, key string) error {
			return testkit.Err(u.client.Latch(key, 2).Count(ctx))
		},
	},
}

// contents are the possible values of a key that a call of another kind finds.
var contents = []struct {
	name   string
	kind   string // empty if it is an application's
	put    func(t *testing.T, u user, servers []*embedded.Server)
	passes string // calls that make nothing there, so that there is nothing to refuse
}{
	// As redsync writes it.
	{"a string", "", foreign(func(s *embedded.Server) { _ = s.Redis.Set("x", "fUBMXN0GeZYCFRBNgwvJKw==") }), ""},
	// As Redisson's RCountDownLatch.
	{"a number", "", foreign(func(s *embedded.Server) { _ = s.Redis.Set("x", "3") }), ""},
	{"a list", "", foreign(func(s *embedded.Server) { _, _ = s.Redis.Push("x", "mine", "too") }), ""},
	{"a sorted set", "", foreign(func(s *embedded.Server) { _, _ = s.Redis.ZAdd("x", 1, "mine") }), ""},
	{"a hash of a count", "", foreign(func(s *embedded.Server) { s.Redis.HSet("x", "visits", "5") }), ""},
	{"a hash of a user", "", foreign(func(s *embedded.Server) { s.Redis.HSet("x", "user:42", "bob") }), ""},
	{"a hash of votes", "", foreign(func(s *embedded.Server) { s.Redis.HSet("x", "user:1", "3", "user:2", "4") }), ""},
	{"a hash of a vote and a field", "", foreign(func(s *embedded.Server) { s.Redis.HSet("x", "user:1", "1", "name", "bob") }), ""},
	{"a held mutex", "mutex", func(t *testing.T, u user, _ []*embedded.Server) { testkit.Lock(t, mutex(u, "x", 0)) }, ""},
	{"an idle mutex", "mutex", func(t *testing.T, u user, _ []*embedded.Server) {
		testkit.Unlock(t, testkit.Lock(t, mutex(u, "x", 0)))
	}, "Count"},
	{"a reader", "mutex", func(t *testing.T, u user, _ []*embedded.Server) { testkit.Lock(t, reader(u, "x", 0)) }, ""},
	{"a held semaphore", "semaphore", func(t *testing.T, u user, _ []*embedded.Server) { testkit.Lock(t, slot(u, "x", 2)) }, ""},
	{"an idle semaphore", "semaphore", func(t *testing.T, u user, _ []*embedded.Server) {
		testkit.Unlock(t, testkit.Lock(t, slot(u, "x", 2)))
	}, "Count"},
	{"a latch", "latch", func(t *testing.T, u user, _ []*embedded.Server) { testkit.Done(t, u.client.Latch("x", 2), "a") }, ""},
}

func foreign(put func(s *embedded.Server)) func(t *testing.T, u user, servers []*embedded.Server) {
	return func(_ *testing.T, _ user, servers []*embedded.Server) {
		for _, s := range servers {
			put(s)
			s.Redis.SetTTL("x", 10*time.Hour)
		}
	}
}

// dumps returns the servers' data, without token counters that a refused call may leave.
func dumps(servers []*embedded.Server, counter bool) (all []string) {
	for _, s := range servers {
		s.Redis.Del(wire.TokenKey("other"))
		if !counter {
			s.Redis.Del(wire.TokenKey("x"))
		}
		all = append(all, s.Redis.Dump())
	}
	return all
}

// A key of another kind at the name of a lock is left alone. Every call returns the error at once,
// names the key's type once, and does not wait for the key to go: that is no outage, and the lock
// is not held. The same holds if a majority of the nodes has the key.
func TestAKeyOfAnotherKindIsReportedAtOnceAndLeftAlone(t *testing.T) {
	for _, tt := range contents {
		for at, some := range map[string]int{"all nodes": 3, "a majority": 2} {
			if some < 3 && tt.kind != "" {
				continue
			}
			testkit.Run(t, tt.name+" at "+at, func(t *testing.T) {
				servers, _ := testkit.Nodes(t, 3)
				u := newUser(t, servers)
				// No renewal changes the key.
				tt.put(t, newUser(t, servers, quorumlock.WithTTL(time.Hour)), servers[:some])
				synctest.Wait()
				counter := servers[0].Redis.Exists(wire.TokenKey("x"))
				before := dumps(servers, counter)
				for kind, of := range calls {
					for name, do := range of {
						if tt.kind != "" && strings.Contains(kind, tt.kind) || kind == "latch" && some < 3 {
							continue // a latch's id at the third node stays
						}
						ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
						began := time.Now()
						err := do(ctx, u, "x")
						took := time.Since(began)
						cancel()
						// Their errors name each node.
						asked := strings.HasSuffix(name, "Inspect") || strings.Contains(name, "ForceUnlock")
						used := "used as a " + kind
						if of, any := strings.CutSuffix(kind, " or semaphore"); any {
							if used = "used as a " + of; !strings.HasSuffix(name, "ForceUnlock") {
								used = "use the name of a mutex, a read-write lock or a semaphore"
							}
						}
						switch {
						case err == nil && tt.passes != "" && strings.Contains(tt.passes, name[strings.LastIndexAny(name, " .")+1:]):
						case !errors.Is(err, quorumlock.ErrWrongKind) && (tt.kind != "" || !errors.Is(err, quorumlock.ErrNotALock)) || errors.Is(err, quorumlock.ErrHeld):
							t.Errorf("%s of a %s: %v, want that it is another kind", name, kind, err)
						case !asked && (errors.Is(err, quorumlock.ErrNoQuorum) || strings.Count(err.Error(), "node ") > 1):
							t.Errorf("%s of a %s: %v, want the kind once, and no other reason", name, kind, err)
						case tt.kind != "" && (!strings.Contains(err.Error(), used) || !strings.Contains(err.Error(), "is a "+tt.kind) && tt.passes == ""):
							t.Errorf("%s of a %s: %v, want both kinds named", name, kind, err)
						}
						if took > 100*time.Millisecond {
							t.Errorf("%s of a %s took %v, want an answer at once", name, kind, took)
						}
						time.Sleep(2 * time.Second) // for pending releases
						for i, after := range dumps(servers, counter) {
							if after != before[i] {
								t.Fatalf("%s of a %s: %s has\n%s\nwant it as it was:\n%s", name, kind, servers[i].Name, after, before[i])
							}
							if ttl := servers[i].Redis.TTL("x"); tt.kind == "" && i < some && (ttl < 9*time.Hour || ttl > 10*time.Hour) {
								t.Errorf("%s of a %s: %s expires the key in %v, want what the application gave it", name, kind, servers[i].Name, ttl)
							}
						}
					}
				}
			})
		}
	}
}

// At a minority of the nodes such a key costs their votes. The lock works at the others, also for
// waiters and by force.
func TestAKeyThatIsNoLockAtAMinorityCostsItsVote(t *testing.T) {
	text := func(key string) func(s *embedded.Server) {
		return func(s *embedded.Server) { _ = s.Redis.Set(key, "mine") }
	}
	for name, put := range map[string]func(s *embedded.Server){
		"a hash": func(s *embedded.Server) { s.Redis.HSet("x", "visits", "5") },
		"a text": text("x"), "a text as the counter": text(wire.TokenKey("x")), "a text as the queue": text(wire.QueueKey("x")), "a text as the entries": text(wire.EntriesKey("x")),
	} {
		testkit.Run(t, name, func(t *testing.T) {
			c, servers := testkit.Client(t, 5, quorumlock.WithWait(time.Second))
			other, _ := testkit.Another(t, servers)
			testkit.Each(servers[:2], put)
			before := servers[0].Redis.Keys()
			lease := testkit.Lock(t, c.Mutex("x"))
			got := testkit.Waiter(t, other.Mutex("x"))
			time.Sleep(2 * quorumlock.DefaultTTL)
			testkit.Held(t, lease)
			testkit.Unlock(t, lease)
			next := testkit.Served(t, got, lease)
			if err := c.ForceUnlock(t.Context(), "x"); err != nil && !errors.Is(err, quorumlock.ErrNotALock) {
				t.Errorf("ForceUnlock: %v", err)
			}
			testkit.Lost(t, next, quorumlock.DefaultTTL)
			_ = next.Unlock(t.Context()) // it is lost
			time.Sleep(2 * time.Second)
			for _, key := range before {
				if got := servers[0].Redis.Type(key); !strings.HasSuffix(name, "hash") && got != "string" {
					t.Errorf("at %q is a %s, want it left alone", key, got)
				}
			}
			want := "the fencing token is not a number"
			switch name {
			case "a hash", "a text":
				return // see above
			case "a text as the queue", "a text as the entries":
				want = "delete the keys of the lock that begin with"
				testkit.Lock(t, other.Mutex("x"))
			}
			put(servers[2])
			if _, err := c.Mutex("x").Lock(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Lock with a majority of such keys: %v, want %q", err, want)
			}
		})
	}
}

// A node with another n costs a latch its vote. With a quorum of such nodes, an error names both
// numbers.
func TestALatchOfAnotherNumberIsAMismatch(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		servers, _ := testkit.Nodes(t, 3)
		c, paths := testkit.Another(t, servers)
		testkit.Kill(paths[1:]...)
		ctx := testkit.Within(t, time.Second)
		if err := c.Latch("x", 5).Done(ctx, "a"); err == nil {
			t.Error("Done at one node of three succeeds")
		}
		d, _ := testkit.Another(t, servers)
		testkit.Done(t, d.Latch("x", 3), "b")
		testkit.Restart(paths...)
		time.Sleep(time.Second)
		l := c.Latch("x", 5)
		_, counted := l.Count(t.Context())
		for name, err := range map[string]error{"Done": l.Done(t.Context(), "a"), "Wait": l.Wait(t.Context()), "Count": counted} {
			if !errors.Is(err, quorumlock.ErrMismatch) || !strings.Contains(err.Error(), "5 here, and 3 at the node") {
				t.Errorf("%s: %v, want ErrMismatch with 5 and 3", name, err)
			}
		}
		testkit.Counts(t, d.Latch("x", 3), 1)
	})
}

// The library's own keys of a lock are not names of locks, with or without a prefix. Nothing is
// sent for them. Names that only look similar are names like any other.
func TestAReservedNameIsRefusedAndASimilarOneIsNot(t *testing.T) {
	for name, tt := range map[string]struct {
		prefix, name string
		refused      bool
	}{
		"token": {"", wire.TokenKey("x"), true}, "queue": {"", wire.QueueKey("x"), true}, "entries": {"", wire.EntriesKey("{x}y"), true}, "age": {"", "quorumlock_age", true},
		"latch": {"", "quorumlock_latch:{x}", true}, "token of a token": {"", wire.TokenKey(wire.TokenKey("x")), true},
		"queue, by a prefix": {"quorumlock_", "waiters:{x}", true}, "token, by a prefix": {"redisson_lock_token:", "{x}", true},
		"behind a prefix": {"app:", wire.QueueKey("x"), false}, "another beginning": {"", "my-" + wire.TokenKey("x"), false},
		"half of it": {"", "redisson_lock", false}, "its first word": {"", "quorumlock", false}, "its second word": {"", "lock_token:{x}", false},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			servers, nodes := testkit.Nodes(t, 3)
			c, err := redlock.New(nodes, quorumlock.WithPrefix(tt.prefix))
			if err != nil && tt.refused {
				return // right there
			} else if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			_, single := testkit.Paths(t, servers[:1])
			for kind, of := range calls {
				for call, do := range of {
					if kind == "latch" || tt.prefix != "" && (strings.HasPrefix(call, "node's") || call == "Acquire" || call == "ForceRelease") {
						continue // a latch stays; the prefix is the client's
					}
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					err := do(ctx, user{c, single[0]}, tt.name)
					cancel()
					switch {
					case !tt.refused && err != nil:
						t.Errorf("%s of a %s: %v", call, kind, err)
					case tt.refused && (err == nil || !strings.HasPrefix(err.Error(), "quorumlock: ") || !strings.Contains(err.Error(), tt.name) || errors.Is(err, context.DeadlineExceeded)):
						t.Errorf("%s of a %s: %v, want an error with the name in it", call, kind, err)
					}
					synctest.Wait()
					if !tt.refused { // each kind has the name for itself
						testkit.Each(servers, func(s *embedded.Server) { s.Redis.FlushAll() })
					}
				}
			}
			if n := testkit.Ran(servers); tt.refused && n > 0 {
				t.Errorf("%d scripts were sent, want none", n)
			}
		})
	}
}

// One slot at one node must not hide the lock that a quorum holds, nor the other way round.
func TestInspectOfANameOfTwoKindsShowsThatOfTheQuorum(t *testing.T) {
	held := map[string]maker{"mutex": mutex, "reader": reader, "semaphore": slot}
	for kind, most := range held {
		for other, few := range held {
			if (kind == "semaphore") == (other == "semaphore") {
				continue
			}
			testkit.Run(t, kind+" and "+other, func(t *testing.T) {
				servers, _ := testkit.Nodes(t, 3)
				u := newUser(t, servers)
				testkit.Lock(t, few(newUser(t, servers[2:]), "x", 2)) // by a client with another list of nodes
				lease := testkit.Lock(t, most(u, "x", 2))
				in, err := u.client.Inspect(t.Context(), "x")
				s := in.State
				owner := s.Owner
				switch {
				case kind == "reader" && len(s.Readers) == 1:
					owner = s.Readers[0].Owner
				case kind == "semaphore" && len(s.Slots) == 1:
					owner = s.Slots[0].Owner
				}
				if err != nil || owner != lease.Owner() || s.TTL <= 0 {
					t.Errorf("Inspect: %+v, %v: want the holder %s", s, err, lease.Owner())
				}
				testkit.Is(t, in.Nodes[2].Err, quorumlock.ErrWrongKind, "the third node")
				servers[1].Kill()
				in, err = u.client.Inspect(t.Context(), "x")
				testkit.Is(t, err, quorumlock.ErrWrongKind, "Inspect with one node of each kind")
				if in.State.Held() {
					t.Errorf("with one node of each kind: %+v, want no holder", in.State)
				}
			})
		}
	}
}
