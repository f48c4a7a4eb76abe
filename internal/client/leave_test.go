package client_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// hooked is a node that runs a function before its next request.
type hooked struct {
	*transport.Node
	next atomic.Pointer[func()]
}

func (n *hooked) Do(ctx context.Context, lane client.Lane, limit time.Duration, calls []wire.Call, answer func([]wire.Reply)) {
	if f := n.next.Swap(nil); f != nil {
		(*f)()
	}
	n.Node.Do(ctx, lane, limit, calls, answer)
}

// world is a client over three hooked servers.
type world struct {
	client  *client.Client
	servers []*embedded.Server
	nodes   []*hooked
	ahead   atomic.Int64 // how far its clock is ahead of all timers
}

func newWorld(t *testing.T) *world {
	servers, nodes := testkit.Nodes(t, 3)
	w := &world{client: client.NewClient("test"), servers: servers}
	for _, n := range nodes {
		w.nodes = append(w.nodes, &hooked{Node: transport.Of(n)})
	}
	w.client.Simulate(func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }, nil, nil)
	t.Cleanup(w.client.Close)
	return w
}

func (w *world) lock(t *testing.T, name string, opts ...quorumlock.Option) *client.Lock {
	t.Helper()
	return lockAt(t, w.client, name, w.nodes, opts...)
}

// asksNoMore fails the test if a node is asked for a hold from now on.
func (w *world) asksNoMore(t *testing.T) {
	for _, s := range w.servers {
		s.Before(func(r embedded.Run) {
			if r.Script == "acquire" {
				t.Errorf("%s was asked for a hold", s.Name)
			}
		})
	}
}

// The first request of the last Unlock is a renewal if one is due, or the release. A call at that
// moment, for the same owner or with a context of the lease, gets a hold of its own.
func TestNobodyEntersAHoldWhoseLastLeaseIsBeingUnlocked(t *testing.T) {
	owner := quorumlock.WithOwner(quorumlock.NewOwner())
	for name, opts := range map[string][]quorumlock.Option{"by owner": {owner}, "by context": nil} {
		for what, ahead := range map[string]time.Duration{"a renewal is due": quorumlock.DefaultTTL / 3, "no renewal is due": 0} {
			testkit.Run(t, name+", "+what, func(t *testing.T) {
				w := newWorld(t)
				l := w.lock(t, "x", opts...)
				first := testkit.Lock(t, l)
				ctx := t.Context()
				if opts == nil {
					ctx = context.WithoutCancel(first.Context())
				}
				came := make(chan *quorumlock.Lease, 1)
				come := func() {
					go func() {
						lease, err := l.Lock(ctx)
						if err != nil {
							t.Error(err)
						}
						came <- lease
					}()
					synctest.Wait()
				}
				w.nodes[0].next.Store(&come)
				w.ahead.Add(int64(ahead))
				testkit.Unlock(t, first)
				second := <-came
				if second == nil {
					return
				}
				testkit.Rises(t, first, second) // else it entered the hold that is being released
				testkit.Held(t, second)
				if n := testkit.Holds(w.servers, "x", second.Owner()); n < 2 {
					t.Errorf("%d of 3 servers have its hold, want a quorum", n)
				}
				testkit.Unlock(t, second)
				testkit.Nothing(t, w.servers)
			})
		}
	}
}

// The limit of a call begins with its sending: what the process does before is no silence of the
// node.
func TestEachNodeHasAWholeNodeTimeout(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		w := newWorld(t)
		stops := func() { time.Sleep(time.Second) }
		w.nodes[0].next.Store(&stops) // before the second is sent to
		testkit.MustUnlock(t, testkit.TryLock(t, w.lock(t, "x", quorumlock.WithNodeTimeout(time.Second))))
	})
}
