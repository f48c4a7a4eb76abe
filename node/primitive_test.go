package node_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
)

func TestThePrimitiveFromAcquireToRelease(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		first, err := n.Acquire(t.Context(), "x", alice, ttl, 1)
		if err != nil || !first.Granted || first.Again {
			t.Fatalf("Acquire: %+v, %v", first, err)
		}
		testkit.Equal(t, first.Token, uint64(time.Now().UnixMicro()), "token, which is the clock's")
		time.Sleep(time.Second)
		if a, err := n.Acquire(t.Context(), "x", bob, ttl, 1); err != nil || a.Granted || a.TTL != ttl-time.Second {
			t.Errorf("somebody else: %+v, %v, want a refusal with 9s", a, err)
		}
		if a, err := n.Acquire(t.Context(), "x", alice, ttl, 2); err != nil || !a.Again || a.Token != first.Token {
			t.Errorf("once more: %+v, %v", a, err)
		}
		want := quorumlock.State{Owner: alice, HoldCount: 2, TTL: ttl, Token: first.Token}
		if got, err := transport.Of(n).Inspect(t.Context(), "x"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Inspect: %+v, %v, want %+v", got, err, want)
		}
		time.Sleep(time.Second)
		if ok, err := n.Renew(t.Context(), "x", bob, time.Hour); ok || err != nil {
			t.Errorf("Renew of somebody else: %v, %v", ok, err)
		}
		if ok, err := n.Renew(t.Context(), "x", alice, time.Minute); !ok || err != nil {
			t.Errorf("Renew: %v, %v", ok, err)
		}
		testkit.Equal(t, s.Redis.TTL("x"), time.Minute, "TTL after Renew")
		testkit.Is(t, testkit.Err(n.Release(t.Context(), "x", bob, 1)), quorumlock.ErrNotHeld, "Release by somebody else")
		for left := 1; left >= 0; left-- {
			if got, err := n.Release(t.Context(), "x", alice, left+1); got != left || err != nil {
				t.Errorf("Release: %d left, %v, want %d", got, err, left)
			}
		}
		if held, err := transport.Of(n).ForceRelease(t.Context(), "x"); held || err != nil {
			t.Errorf("ForceRelease of a free lock: %v, %v", held, err)
		}
		mustAcquire(t, n, bob, 1)
		if held, err := transport.Of(n).ForceRelease(t.Context(), "x"); !held || err != nil {
			t.Errorf("ForceRelease: %v, %v", held, err)
		}
		testkit.NoLocks(t, []*embedded.Server{s})
	})
}

// arguments are those of a call of the primitive, as far as it has them.
type arguments struct {
	ctx   context.Context
	name  string
	owner quorumlock.Owner
	ttl   time.Duration
	hold  int
}

// primitive has all calls of the primitive; each returns only its error.
var primitive = map[string]func(n *node.Node, a arguments) error{
	"Acquire": func(n *node.Node, a arguments) error {
		return testkit.Err(n.Acquire(a.ctx, a.name, a.owner, a.ttl, a.hold))
	},
	"Renew": func(n *node.Node, a arguments) error {
		return testkit.Err(n.Renew(a.ctx, a.name, a.owner, a.ttl))
	},
	"Release": func(n *node.Node, a arguments) error {
		return testkit.Err(n.Release(a.ctx, a.name, a.owner, a.hold))
	},
	"ForceRelease": func(n *node.Node, a arguments) error {
		return testkit.Err(transport.Of(n).ForceRelease(a.ctx, a.name))
	},
	"Inspect": func(n *node.Node, a arguments) error {
		return testkit.Err(transport.Of(n).Inspect(a.ctx, a.name))
	},
}

// eachCall calls f for each call of the primitive, with good arguments.
func eachCall(f func(name string, call func(ctx context.Context, n *node.Node) error)) {
	for name, do := range primitive {
		f(name, func(ctx context.Context, n *node.Node) error { return do(n, arguments{ctx, "x", alice, ttl, 1}) })
	}
}

func TestBadArgumentsAreRefusedBeforeAnythingIsSent(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		servers, nodes := testkit.Nodes(t, 1)
		servers[0].Kill() // any request would fail
		const all = "Acquire Renew Release ForceRelease Inspect"
		for _, tt := range []struct {
			what, calls string
			spoil       func(a *arguments)
			want        string
		}{
			{"no name", all, func(a *arguments) { a.name = "" }, "the name of the lock is empty: use a name"},
			{"a name beside locks", all, func(a *arguments) { a.name = "redisson_lock_token:{x}" }, "use a name with another beginning"},
			{"no context", all, func(a *arguments) { a.ctx = nil }, "use context.Background()"},
			{"no owner", "Acquire Renew", func(a *arguments) { a.owner = "" }, "the owner is empty: use quorumlock.NewOwner"},
			{"an owner without a number", "Acquire", func(a *arguments) { a.owner = "alice" }, "is not <client>:<n>"},
			{"an asterisk", "Acquire", func(a *arguments) { a.owner = "*" }, "without spaces, * and /"},
			{"an owner to whom a lock was handed", "Acquire", func(a *arguments) { a.owner += "/1" }, "without spaces, * and /"},
			{"hold 0", "Acquire Release", func(a *arguments) { a.hold = 0 }, "hold is 0: use 1"},
			{"a negative hold", "Acquire Release", func(a *arguments) { a.hold = -1 }, "hold is -1: use 1"},
			{"a short TTL", "Acquire Renew", func(a *arguments) { a.ttl = time.Millisecond }, "ttl 1ms is too short: use at least 10ms"},
			{"a negative TTL", "Acquire Renew", func(a *arguments) { a.ttl = -ttl }, "ttl -10s is too short: use at least 10ms"},
		} {
			for name := range strings.FieldsSeq(tt.calls) {
				a := arguments{t.Context(), "x", alice, ttl, 1}
				tt.spoil(&a)
				says(t, name+" with "+tt.what, primitive[name](nodes[0], a), "quorumlock: ", tt.want)
			}
		}
		spread := cluster(t, servers[0], false)
		for _, name := range []string{"a{b", "a}b"} {
			says(t, name, testkit.Err(spread.Acquire(t.Context(), name, alice, ttl, 1)), "would spread its keys over several servers")
		}
		var none context.Context
		testkit.Is(t, testkit.Err(nodes[0].Status(none)), quorumlock.ErrNilContext, "Status")
	})
}

func TestACallReturnsAsSoonAsItsContextIsDone(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		s.Delay(100 * time.Millisecond)
		eachCall(func(name string, call func(ctx context.Context, n *node.Node) error) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(30*time.Millisecond, cancel)
			for _, want := range []time.Duration{30 * time.Millisecond, 0} {
				began := time.Now()
				testkit.Is(t, call(ctx, n), context.Canceled, "%s", name)
				testkit.Took(t, began, want, want, "%s", name)
			}
		})
	})
}

// know makes n connect, and its server know the scripts: later calls are sent once.
func know(t *testing.T, n *node.Node) {
	t.Helper()
	eachCall(func(name string, call func(ctx context.Context, n *node.Node) error) {
		if err := call(t.Context(), n); err != nil && !errors.Is(err, quorumlock.ErrNotHeld) {
			t.Fatal(name, err)
		}
	})
	testkit.Must(t, testkit.Err(transport.Of(n).ForceRelease(t.Context(), "x")), "ForceRelease")
}

// The outcome of a call may be unknown; that of the same call again is not. An entry is not undone:
// a repeated call would lose its own entry.
func TestACallIsSafeToRepeatAfterALostReply(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		know(t, n)
		unknown := func(name string, hold int, want string) {
			t.Helper()
			s.LoseReplies(1)
			if err := primitive[name](n, arguments{t.Context(), "x", alice, ttl, hold}); err == nil {
				t.Fatalf("%s: no error for a reply that was lost", name)
			}
			synctest.Wait()
			checkCount(t, s, alice, want)
		}
		for hold := 1; hold <= 3; hold++ {
			unknown("Acquire", hold, fmt.Sprint(hold))
			a, err := n.Acquire(t.Context(), "x", alice, ttl, hold)
			if err != nil || !a.Granted || !a.Again {
				t.Errorf("the same call again: %+v, %v", a, err)
			}
			synctest.Wait()
			checkCount(t, s, alice, fmt.Sprint(hold))
		}
		unknown("Release", 3, "2")
		testkit.Is(t, testkit.Err(n.Release(t.Context(), "x", alice, 3)), quorumlock.ErrNotHeld, "the same release again")
		unknown("Renew", 3, "2")
	})
}

func TestEachCallHasTheErrorOfItsNode(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil  func(t *testing.T, s *embedded.Server, n *node.Node) *node.Node
		want   string
		closed bool // ErrClosed is no error of a node
	}{
		"a server that cannot": {func(t *testing.T, s *embedded.Server, n *node.Node) *node.Node {
			know(t, n)
			s.Redis.SetError("LOADING Redis is loading the dataset in memory")
			t.Cleanup(func() { s.Redis.SetError("") })
			return n
		}, "node node-1: LOADING", false},
		"the answers of another script": {func(t *testing.T, _ *embedded.Server, _ *node.Node) *node.Node {
			return dial(t, "redis://h", node.WithDialer(scripted("+OK\r\n").dial))
		}, `unexpected reply "OK"`, false},
		"a node that is closed": {func(t *testing.T, _ *embedded.Server, n *node.Node) *node.Node {
			mustClose(t, n) // and once more at the end of the test
			return n
		}, "closed", true},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			servers, nodes := testkit.Nodes(t, 1)
			n := tt.spoil(t, servers[0], nodes[0])
			eachCall(func(name string, call func(ctx context.Context, n *node.Node) error) {
				err := call(t.Context(), n)
				says(t, name, err, tt.want)
				_, ofNode := errors.AsType[*quorumlock.NodeError](err)
				testkit.Equal(t, errors.Is(err, quorumlock.ErrClosed), tt.closed, "%s: ErrClosed", name)
				testkit.Equal(t, ofNode || tt.closed, true, "%s: a *NodeError", name)
			})
		})
	}
}

func TestCloseWaitsForWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		mustAcquire(t, n, bob, 1)
		s.Delay(100 * time.Millisecond)
		ctx := testkit.Within(t, 10*time.Millisecond)
		testkit.Is(t, testkit.Err(n.Acquire(ctx, "y", alice, ttl, 1)), context.DeadlineExceeded, "Acquire")
		mustClose(t, n)
		if s.Redis.Exists("y") {
			t.Error("the node was closed before the late grant was undone")
		}
	})
}

// Acquire names the holder. That must not let a caller free or renew the hold of a lease.
func TestThePrimitiveRefusesTheOwnerOfALease(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		_, nodes := testkit.Nodes(t, 1)
		lease := testkit.Lock(t, nodes[0].Mutex("x"))
		refused, err := nodes[0].Acquire(t.Context(), "x", quorumlock.NewOwner(), time.Minute, 1)
		if err != nil || refused.Granted || refused.Holder == "" {
			t.Fatalf("Acquire: %+v, %v, want a refusal that names the holder", refused, err)
		}
		testkit.Is(t, testkit.Err(nodes[0].Release(t.Context(), "x", refused.Holder, 1)), quorumlock.ErrMisuse, "Release")
		testkit.Is(t, testkit.Err(nodes[0].Renew(t.Context(), "x", refused.Holder, time.Minute)), quorumlock.ErrMisuse, "Renew")
		testkit.Held(t, lease)
	})
}
