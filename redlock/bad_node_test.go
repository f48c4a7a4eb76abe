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
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// A node that refuses service, for whatever reason, is one vote less; a majority of them is an error
// that says what they said. What a server answers for real is tried on real ones.
func TestNodeThatRefusesServiceIsOneVoteLess(t *testing.T) {
	for _, message := range []string{
		"READONLY You can't write against a read only replica.",
		"LOADING Redis is loading the dataset in memory",
		"OOM command not allowed when used memory > 'maxmemory'.",
		"NOPERM this user has no permissions to run the 'evalsha' command",
		"NOAUTH Authentication required.",
		"WRONGPASS invalid username-password pair or user is disabled.",
		"MISCONF Redis is configured to save RDB snapshots, but it is currently unable to persist to disk.",
	} {
		t.Run(strings.Fields(message)[0], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 5)
				early := locktest.Lock(t, c.Mutex("early"))
				locktest.Each(servers[:2], func(s *embedded.Server) { s.Redis.SetError(message) })
				lease := locktest.TryLock(t, c.Mutex("x"))
				time.Sleep(quorumlock.DefaultTTL)
				locktest.Held(t, early)
				locktest.Held(t, lease)
				locktest.Unlock(t, lease)

				servers[2].Redis.SetError(message)
				_, err := c.Mutex("x").TryLock(t.Context())
				q, ok := errors.AsType[*quorumlock.QuorumError](err)
				if !ok || len(q.Nodes) != 3 || !strings.Contains(err.Error(), message) {
					t.Errorf("TryLock: %v, want a QuorumError that says what the 3 nodes did", err)
				}
				locktest.Each(servers[:3], func(s *embedded.Server) { s.Redis.SetError("") })
				time.Sleep(2 * time.Second)
				locktest.Unlock(t, early)
				locktest.Unlock(t, locktest.TryLock(t, c.Mutex("x")))
				time.Sleep(quorumlock.DefaultTTL)
				locktest.Nothing(t, servers)
			})
		})
	}
}

// The key of a lock may be taken by something else at some nodes. It is left alone.
func TestWrongTypeAtTheKeyIsOneVoteLessAndLeftAlone(t *testing.T) {
	for name, put := range map[string]func(s *embedded.Server, key string){
		"string": func(s *embedded.Server, key string) { _ = s.Redis.Set(key, "mine") },
		"list":   func(s *embedded.Server, key string) { _, _ = s.Redis.Push(key, "mine") },
	} {
		for _, key := range []string{"x", "redisson_lock_token:{x}", "quorumlock_queue:{x}", "quorumlock_waiters:{x}"} {
			if name == "list" && key != "x" {
				continue
			}
			t.Run(name+" at "+key, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, servers := locktest.Client(t, 5, quorumlock.WithWait(time.Second))
					taken := func(n int) {
						t.Helper()
						for i, s := range servers {
							if s.Redis.Exists(key) && s.Redis.Type(key) != name && i < n {
								t.Errorf("%s has a %s at %q, want it left alone", s.Name, s.Redis.Type(key), key)
							}
							if i < n && !s.Redis.Exists(key) {
								t.Errorf("%s has nothing at %q, want it left alone", s.Name, key)
							}
						}
					}
					locktest.Each(servers[:2], func(s *embedded.Server) { put(s, key) })
					lease := locktest.Lock(t, c.Mutex("x"))
					time.Sleep(2 * quorumlock.DefaultTTL)
					locktest.Held(t, lease)
					locktest.Unlock(t, lease)
					taken(2)

					servers[2].Redis.Del(key)
					put(servers[2], key)
					lease, err := c.Mutex("x").Lock(t.Context())
					if strings.HasPrefix(key, "quorumlock_") && err == nil {
						locktest.Unlock(t, lease) // nobody waits: the line may not be looked at
					} else if q, few := errors.AsType[*quorumlock.QuorumError](err); strings.HasPrefix(key, "redisson_") {
						if !few || len(q.Nodes) != 3 || !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, quorumlock.ErrNotALock) {
							t.Errorf("Lock: %v, want a QuorumError that names the 3 nodes", err)
						}
					} else if few || !errors.Is(err, quorumlock.ErrNotALock) || strings.Count(err.Error(), "node ") != 1 {
						t.Errorf("Lock: %v, want it to say what the key is, once and at once, and no QuorumError", err)
					}
					taken(3)
					locktest.Each(servers[:3], func(s *embedded.Server) { s.Redis.Del(key) })
					locktest.Nothing(t, servers)
				})
			})
		}
	}
}

// twice returns a client whose first two nodes are two addresses of one server.
func twice(t *testing.T, distinct int) (*redlock.Client, []*embedded.Server) {
	t.Helper()
	servers, nodes := locktest.Nodes(t, distinct)
	alias := servers[0].Path("alias")
	t.Cleanup(alias.Close)
	n, err := alias.Node()
	if err != nil {
		t.Fatal(err)
	}
	c, err := redlock.New(append([]*node.Node{n}, nodes...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c, servers
}

// One server under two addresses has one vote: two addresses of three are no majority.
func TestTwoAddressesOfOneServerHaveOneVote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := twice(t, 2)
		servers[1].Kill()
		_, err := c.Mutex("x").TryLock(t.Context())
		if err == nil {
			t.Fatal("one server of two made a quorum of two")
		}
		if q, ok := errors.AsType[*quorumlock.QuorumError](err); !ok || !strings.Contains(err.Error(), "same server") || len(q.Nodes) != 2 {
			t.Errorf("TryLock: %v, want a QuorumError that says what is wrong", err)
		}
		locktest.Nothing(t, servers[:1])
		servers[1].Restart(true)
		time.Sleep(time.Second)
		lease := locktest.TryLock(t, c.Mutex("x")) // both servers
		time.Sleep(2 * quorumlock.DefaultTTL)
		locktest.Held(t, lease)
		locktest.Unlock(t, lease)
		locktest.Nothing(t, servers)
	})
}

// Nor do the renewals count the server twice so that somebody else could get a quorum meanwhile.
func TestTwoAddressesOfOneServerDoNotKeepALostLockAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := twice(t, 2)
		other, _ := locktest.Another(t, servers)
		lease := locktest.Lock(t, c.Mutex("x"))
		servers[1].Restart(false)
		locktest.Refused(t, other.Mutex("x")) // two of two are its quorum
		time.Sleep(2 * quorumlock.DefaultTTL)
		locktest.Held(t, lease)
		locktest.Unlock(t, lease)
		locktest.Nothing(t, servers)
	})
}

func TestLockNamesAreTakenAsTheyAre(t *testing.T) {
	names := []string{
		"{x}", "a{b}c", "{", "}", "}{", "{}", "two words", " ", "\t\n", "schloß/замок/锁🔒", "\xff\xfe\x00",
		"my_redisson_lock_token:{x}y", "%s%d", "*", "a:b", strings.Repeat("k", 1024), strings.Repeat("é", 512),
	}
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		other, _ := locktest.Another(t, servers)
		leases := make([]*quorumlock.Lease, len(names))
		for i, name := range names {
			leases[i] = locktest.TryLock(t, c.Mutex(name)) // no name is in the way of another
			if leases[i].Name() != name {
				t.Errorf("the lease of %q is named %q", name, leases[i].Name())
			}
		}
		for i, name := range names {
			locktest.Refused(t, other.Mutex(name))
			locktest.HoldsAll(t, servers, leases[i])
			got := make(chan *quorumlock.Lease)
			go func() {
				l, err := other.Mutex(name).Lock(t.Context())
				if err != nil {
					t.Errorf("Lock of %q: %v", name, err)
				}
				got <- l
			}()
			time.Sleep(100 * time.Millisecond)
			began := time.Now()
			if err := leases[i].Unlock(t.Context()); err != nil {
				t.Errorf("Unlock of %q: %v", name, err)
			}
			next := <-got
			if took := time.Since(began); took > 10*time.Millisecond {
				t.Errorf("the waiter for %q was woken after %v", name, took)
			}
			if next.Token() <= leases[i].Token() {
				t.Errorf("token %d after %d", next.Token(), leases[i].Token())
			}
			locktest.Unlock(t, next)
		}
		locktest.NoLocks(t, servers)
	})
}

// Three contenders split the votes two, two and one: one TryLock wins, and Lock serves them all, at once.
func TestThreeWaySplitVoteEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clients := make([]*redlock.Client, 3)
		var servers []*embedded.Server
		var paths [3][]*embedded.Server
		servers, _ = locktest.Nodes(t, 5)
		for i := range clients {
			clients[i], paths[i] = locktest.Another(t, servers)
			warm(t, clients[i])
		}
		first := [3][]int{{0, 1}, {2, 3}, {4}} // whom each reaches a moment before the others do
		for i, p := range paths {
			locktest.Each(p, func(s *embedded.Server) { s.Delay(10 * time.Millisecond) })
			for _, at := range first[i] {
				p[at].Delay(time.Millisecond)
			}
		}
		for _, wait := range []bool{false, true} {
			type outcome struct {
				lease *quorumlock.Lease
				err   error
			}
			outcomes := make(chan outcome)
			start, served := time.Now(), 0
			for _, c := range clients {
				go func() {
					m := c.Mutex("x")
					lock := m.TryLock
					if wait {
						lock = m.Lock
					}
					l, err := lock(t.Context())
					if err == nil {
						err = l.Unlock(t.Context())
					}
					outcomes <- outcome{l, err}
				}()
			}
			for range clients {
				o := <-outcomes
				switch {
				case wait && o.err != nil:
					t.Errorf("Lock: %v", o.err)
				case o.err == nil:
					served++
				case !errors.Is(o.err, quorumlock.ErrHeld):
					t.Errorf("TryLock: %v, want ErrHeld", o.err)
				}
			}
			if served == 0 {
				t.Errorf("nobody won the split vote, waiting %v", wait)
			}
			if took := time.Since(start); took > time.Second {
				t.Errorf("it took %v to serve three", took)
			}
			locktest.Nothing(t, servers)
		}
	})
}
