package multilock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// tried runs a subtest with two clients of five servers, and checks that it leaves nothing at them.
func tried(t *testing.T, name string, f func(t *testing.T, c, other *redlock.Client, servers []*embedded.Server)) {
	t.Helper()
	testkit.Run(t, name, func(t *testing.T) {
		c, servers := testkit.Client(t, 5)
		other, _ := testkit.Another(t, servers)
		f(t, c, other, servers)
		testkit.Nothing(t, servers)
	})
}

// free checks that every lock is free, and nothing else.
func free(t *testing.T, locks ...quorumlock.Locker) {
	t.Helper()
	for _, l := range locks {
		testkit.Unlock(t, testkit.TryLock(t, l))
	}
}

func TestMembersAreLockedAsOne(t *testing.T) {
	tried(t, "or none, where somebody else holds one", func(t *testing.T, c, other *redlock.Client, _ []*embedded.Server) {
		m := testkit.Multi(t, c.Mutex("a"), c.Mutex("b"), c.Mutex("c"))
		for name, others := range map[string]string{"a": "bc", "b": "ac", "c": "ab"} {
			held := testkit.Lock(t, other.Mutex(name))
			testkit.Refused(t, m)
			free(t, other.Mutex(others[:1]), other.Mutex(others[1:]))
			testkit.Unlock(t, held)
		}
		free(t, m)
	})
	tried(t, "or none, where one cannot be reached", func(t *testing.T, c, _ *redlock.Client, _ []*embedded.Server) {
		d, far := testkit.Client(t, 3)
		m := testkit.Multi(t, c.Mutex("a"), d.Mutex("b"))
		testkit.Kill(far[:2]...)
		_, err := m.TryLock(t.Context())
		q, ok := errors.AsType[*quorumlock.QuorumError](err)
		if !ok || errors.Is(err, quorumlock.ErrHeld) || q.Granted > 1 || q.Needed != 2 || len(q.Nodes) != 2 {
			t.Errorf("TryLock: %v, want a QuorumError of 2 members that names 2 nodes", err)
		}
		testkit.Nothing(t, far)
		time.AfterFunc(5*time.Second, func() { testkit.Restart(far[:2]...) })
		testkit.Unlock(t, testkit.Lock(t, m)) // rides it out
		testkit.Nothing(t, far)
	})
	tried(t, "whatever their clients", func(t *testing.T, c, d *redlock.Client, servers []*embedded.Server) {
		e, _ := testkit.Another(t, servers)
		m := testkit.Multi(t, c.Mutex("a"), d.Mutex("b"))
		testkit.Equal(t, m.Name(), "a + b", "the name")
		lease := testkit.Lock(t, m)
		for _, name := range []string{"a", "b"} {
			testkit.Refused(t, e.Mutex(name))
			testkit.Equal(t, testkit.Holds(servers, name, lease.Owner()), 5, "nodes that have %q", name)
		}
		time.Sleep(2 * quorumlock.DefaultTTL)
		testkit.Held(t, lease)
		deadline := lease.ValidUntil()
		testkit.OK(t, d.Close(), "Close") // the member's nodes are gone for this lease
		lost(t, lease)
		testkit.Equal(t, lease.ValidUntil().Before(deadline), false, "the lease has become shorter")
		free(t, e.Mutex("a"))
		if _, err := m.TryLock(t.Context()); err == nil {
			t.Error("acquired with the nodes of a member closed")
		}
		time.Sleep(quorumlock.DefaultTTL)
	})
	tried(t, "also if one name is read and another is written", func(t *testing.T, c, d *redlock.Client, _ []*embedded.Server) {
		lease := testkit.Lock(t, testkit.Multi(t, c.RWMutex("account"), c.RWMutex("rates").RLocker()))
		free(t, d.RWMutex("rates").RLocker())
		testkit.Refused(t, d.RWMutex("rates"))
		testkit.Refused(t, d.RWMutex("account").RLocker())

		// A holder of one name alone that shares the other has both, but may not hold both alone.
		began := time.Now()
		both := testkit.Multi(t, c.RWMutex("account"), c.RWMutex("rates"))
		testkit.Is(t, testkit.Err(both.Lock(lease.Context())), quorumlock.ErrUpgrade, "Lock of what it shares")
		testkit.Took(t, began, 0, 0, "Lock of what it shares")
		testkit.Unlock(t, lease)
	})
}

// lost checks the loss of a lease by its deadline.
func lost(t *testing.T, lease *quorumlock.Lease) {
	t.Helper()
	testkit.Lost(t, lease, quorumlock.DefaultTTL)
	if late := time.Since(lease.ValidUntil()); late > 0 {
		t.Errorf("told %v after the deadline", late)
	}
	testkit.Is(t, lease.Extend(t.Context()), quorumlock.ErrLost, "Extend")
	testkit.Is(t, lease.Unlock(t.Context()), quorumlock.ErrLost, "Unlock")
	synctest.Wait()
}

// The members may be a node's lock, a RedLock and a MultiLock, at nodes of their own.
func TestMembersOfAllKindsMix(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		singles, nodes := testkit.Nodes(t, 2)
		c, reds := testkit.Client(t, 3)
		d, others := testkit.Client(t, 5, quorumlock.WithQuorum(4))
		single, red, of5 := nodes[0].Mutex("a"), c.Mutex("b"), d.Mutex("c")
		inner := testkit.Multi(t, nodes[1].Mutex("d"), of5)
		m := testkit.Multi(t, single, red, inner)
		servers := append(append(singles, reds...), others...)

		lease := testkit.Lock(t, m)
		if left := strings.Join(append(testkit.Keys(servers[0]), testkit.Keys(servers[1])...), " "); left != "a d" {
			t.Errorf("the nodes have %q", left)
		}
		time.Sleep(2 * quorumlock.DefaultTTL)
		for _, l := range []quorumlock.Locker{single, red, inner, of5, m} {
			testkit.Refused(t, l)
		}
		testkit.OK(t, lease.Extend(t.Context()), "Extend")
		// Each member has the tolerance that it has alone: one of three, and one of five with a
		// quorum of four.
		reds[0].Kill()
		others[4].Kill()
		time.Sleep(2 * quorumlock.DefaultTTL)
		testkit.Held(t, lease)
		testkit.Unlock(t, lease)
		free(t, m, single, red, inner)
		others[3].Kill()                 // one too many
		_, err := m.TryLock(t.Context()) // three of five are no quorum of four
		if q, ok := errors.AsType[*quorumlock.QuorumError](err); !ok || q.Needed != 3 || len(q.Nodes) < 2 {
			t.Errorf("TryLock: %v, want a QuorumError of the 3 members that names the nodes", err)
		}
		testkit.NoLocks(t, servers)
	})
}

// "If one member is lost, the whole lease is, and Unlock frees the others still."
func TestOneMemberLostLosesTheLeaseAndUnlockFreesTheOthers(t *testing.T) {
	for name, lose := range map[string]func(far []*embedded.Server){
		"its keys were taken": func(far []*embedded.Server) { testkit.Each(far, func(s *embedded.Server) { s.Redis.Del("b") }) },
		"it was cut off":      func(far []*embedded.Server) { testkit.Kill(far[:2]...) },
	} {
		tried(t, name, func(t *testing.T, c, other *redlock.Client, _ []*embedded.Server) {
			d, far := testkit.Client(t, 3)
			lease := testkit.Lock(t, testkit.Multi(t, c.Mutex("a"), d.Mutex("b")))
			lose(far)
			<-lease.Context().Done()
			testkit.Refused(t, other.Mutex("a"))
			lost(t, lease)
			free(t, other.Mutex("a"))
		})
	}
}

// Its token is higher than that of any earlier grant of any member, and every member's next is
// higher.
func TestTokenIsHigherThanAnyEarlierOfAnyMember(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		_, nodes := testkit.Nodes(t, 1)
		c, servers := testkit.Client(t, 3)
		d, _ := testkit.Another(t, servers)
		a, b, single := c.Mutex("a"), d.Mutex("b"), nodes[0].Mutex("n")
		both, three := testkit.Multi(t, a, b), testkit.Multi(t, b, testkit.Multi(t, single, a))
		// The counters of one member are far ahead, by turns.
		last := uint64(time.Now().Add(time.Hour).UnixMicro())
		for i := range 12 {
			last += 1000
			ahead := servers[i%3 : i%3+1]
			if i%3 == 0 {
				ahead = servers // it must be seen
			}
			for _, s := range ahead {
				testkit.Must(t, s.Redis.Set("redisson_lock_token:{"+[]string{"a", "b"}[i%2]+"}", fmt.Sprint(last)), "Set")
			}
			for _, l := range []quorumlock.Locker{both, a, three, b, single, both} {
				if l == quorumlock.Locker(single) && i%3 != 0 {
					continue // it has not seen the members that it is no part of
				}
				lease := testkit.TryLock(t, l)
				if l == both && i%3 == 0 && lease.Token() <= last {
					t.Errorf("token %d of %q after %d", lease.Token(), l.Name(), last)
				}
				if l != quorumlock.Locker(single) {
					last = max(last, lease.Token())
				}
				testkit.Unlock(t, lease)
			}
		}
	})
}

func TestMembersThatCannotWorkAreRejected(t *testing.T) {
	// One server has one vote, by whatever node a member reaches it.
	tried(t, "one server by two clients", func(t *testing.T, c, d *redlock.Client, _ []*embedded.Server) {
		_, err := testkit.Multi(t, c.Mutex("a"), d.Mutex("a")).TryLock(t.Context())
		if err == nil || !strings.Contains(err.Error(), "same server") {
			t.Errorf("TryLock: %v, want to be told that it is one server", err)
		}
	})
	tried(t, "by New", func(t *testing.T, c, _ *redlock.Client, _ []*embedded.Server) {
		d, _ := testkit.Client(t, 3)
		a, b := c.Mutex("a"), c.Mutex("b")
		for name, members := range map[string][]quorumlock.Locker{
			"none":                  {},
			"nil":                   {a, nil},
			"a nil node.Mutex":      {a, (*node.Mutex)(nil)},
			"a nil redlock.Mutex":   {a, (*redlock.Mutex)(nil)},
			"a nil multilock.Mutex": {a, (*multilock.Mutex)(nil)},
			"twice the same":        {a, b, a},
			"twice the same name":   {a, c.Mutex("a")},
			"in a nested one, too":  {a, testkit.Multi(t, b, c.Mutex("a"))},
			"foreign":               {a, foreign{}},
			"foreign around ours":   {foreign{a}},
			"a lock and its reader": {c.RWMutex("a").RLocker(), c.RWMutex("a")},
			"no name":               {a, c.Mutex("")},
			"a bad option":          {a, c.Mutex("c", quorumlock.WithTTL(time.Millisecond))},
		} {
			if m, err := multilock.New(members); err == nil || m != nil || !strings.HasPrefix(err.Error(), "quorumlock: ") {
				t.Errorf("New of members of which one is %s: %v, %v: want an error", name, m, err)
			}
		}
		for _, opt := range []quorumlock.Option{quorumlock.WithQuorum(2), quorumlock.WithLabel("billing"), quorumlock.WithTTL(time.Millisecond)} {
			testkit.Is(t, testkit.Err(multilock.New([]quorumlock.Locker{a, b}, opt)), quorumlock.ErrMisuse, "New")
		}
		testkit.Multi(t, a, d.Mutex("a")) // the same name at other nodes is another lock
	})
}

// A hold that overlaps one of the same context would wait for itself: it gets an error instead.
func TestOverlapWithAHeldMemberIsAnErrorNoDeadlock(t *testing.T) {
	tried(t, "in any order", func(t *testing.T, c, _ *redlock.Client, _ []*embedded.Server) {
		a, b, x := c.Mutex("a"), c.Mutex("b"), c.Mutex("x")
		both := testkit.Multi(t, a, b)
		for name, tt := range map[string]struct{ first, second quorumlock.Locker }{
			"a member of the held":           {both, a},
			"the held is a member":           {b, both},
			"they share a member":            {both, testkit.Multi(t, x, b)},
			"the held is a member in depth":  {a, testkit.Multi(t, x, both)},
			"a member, behind another lease": {both, b},
		} {
			outer := testkit.Lock(t, tt.first)
			between := testkit.LockIn(t, outer.Context(), c.Mutex("between"))
			for _, ctx := range []context.Context{outer.Context(), between.Context()} {
				start := time.Now()
				if _, err := tt.second.Lock(ctx); !errors.Is(err, quorumlock.ErrDeadlock) || !strings.Contains(err.Error(), "already holds") {
					t.Errorf("%s: Lock: %v, want ErrDeadlock and why", name, err)
				}
				testkit.Took(t, start, 0, 0, "%s: Lock", name)
			}
			again := testkit.LockIn(t, between.Context(), tt.first) // the very same is entered
			if again.HoldCount() != 2 || again.Token() != outer.Token() {
				t.Errorf("hold count %d, want 2 in the same hold", again.HoldCount())
			}
			testkit.UnlockAll(t, again, between, outer)
			free(t, tt.first, tt.second)
		}
	})
}

// Another caller holds one member, and the nodes of the other are down. The error matches both
// reasons.
func TestAHeldMemberDoesNotHideTheOutageOfAnother(t *testing.T) {
	for name, cut := range map[string]func(*embedded.Server){"killed": (*embedded.Server).Kill, "frozen": (*embedded.Server).Stall} {
		testkit.Run(t, name, func(t *testing.T) {
			c, near := testkit.Client(t, 3, quorumlock.WithWait(2*time.Second))
			d, far := testkit.Client(t, 3, quorumlock.WithWait(2*time.Second))
			other, _ := testkit.Another(t, near)
			testkit.Lock(t, other.Mutex("a"))
			m := testkit.Multi(t, c.Mutex("a"), d.Mutex("b"))
			testkit.Each(far[1:], cut)
			for call, err := range map[string]error{"Lock": testkit.Err(m.Lock(t.Context())), "TryLock": testkit.Err(m.TryLock(t.Context()))} {
				known := call == "Lock" || name == "killed" // a TryLock does not wait for silent nodes once a member is held
				if !errors.Is(err, quorumlock.ErrHeld) || errors.Is(err, quorumlock.ErrNoQuorum) != known || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: %v, want ErrHeld in one line, and ErrNoQuorum: %v", call, err, known)
				}
			}
		})
	}
}

// What a node is asked to renew comes in pipelines of five hundred. A MultiLock whose two keys
// there are in two of them is renewed although the key in the first is gone: it is not waited for
// before the second is asked for.
func TestKeyGoneIsTakenBackWhenTheRenewalTakesSeveralPipelines(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		servers, nodes := testkit.Nodes(t, 3)
		several, single := testkit.Of(t, nodes), testkit.Of(t, nodes[:1])
		for i := range 498 {
			testkit.Must(t, testkit.Err(single.Mutex(fmt.Sprint("single-", i)).TryLock(t.Context())), "TryLock")
		}
		time.Sleep(time.Millisecond) // the next is renewed with them, and behind them
		lease := testkit.TryLock(t, testkit.Multi(t, single.Mutex("499"), several.Mutex("500"), nodes[0].Mutex("501")))
		deadline := lease.ValidUntil()
		servers[0].Redis.Del("500")
		time.Sleep(quorumlock.DefaultTTL / 2)
		testkit.Held(t, lease)
		testkit.Equal(t, lease.ValidUntil().After(deadline), true, "the lease was renewed")
		testkit.Equal(t, servers[0].Redis.Exists("500"), true, "the key was taken back")
		testkit.Unlock(t, lease)
	})
}

// foreign is a Locker of another make.
type foreign struct{ quorumlock.Locker }

func (foreign) Name() string { return "foreign" }

func (foreign) Lock(context.Context) (*quorumlock.Lease, error) { panic("not to be called") }
