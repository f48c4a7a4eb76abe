package sick

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// An acquire and the release behind it go to a node in one pipeline. The node knows only the script
// of the release, and runs it. The acquire must not run after that.
func TestAnAcquireOfAnUnknownScriptDoesNotRunAfterItsRelease(t *testing.T) {
	for _, unlocks := range []bool{false, true} {
		name := "the caller goes"
		if unlocks {
			name = "the caller unlocks"
		}
		testkit.Run(t, name, func(t *testing.T) {
			c, servers := testkit.Client(t, 3)
			testkit.Warm(t, c)
			unknowing := servers
			if unlocks { // the others grant
				unknowing = servers[2:]
			}
			testkit.Each(unknowing, func(s *embedded.Server) {
				s.FlushScripts()
				n, err := s.Node()
				testkit.Must(t, err, "Node")
				defer n.Close() //nolint:errcheck // nothing is on its way
				testkit.Must(t, n.Client().ScriptLoad(t.Context(), wire.Release("", "", 0).Script.Source).Err(), "ScriptLoad")
				s.Delay(10 * time.Millisecond)
			})
			// Later requests go in one pipeline.
			go func() { _, _ = c.Inspect(t.Context(), "y") }()
			synctest.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			released, acquired := servers[2].Ran("release"), servers[2].Ran("acquire")
			lease, err := c.Mutex("x").Lock(ctx)
			switch {
			case unlocks && err == nil:
				testkit.MustUnlock(t, lease)
			case unlocks || !errors.Is(err, context.Canceled):
				t.Errorf("Lock: %v", err)
			}
			time.Sleep(time.Second)
			if servers[2].Ran("release") == released {
				t.Error("control: the release has not run")
			}
			testkit.Equal(t, servers[2].Ran("acquire")-acquired, 0, "runs of the acquire")
			testkit.NoLocks(t, servers)
			testkit.Each(servers, func(s *embedded.Server) { s.Delay(0) })
			testkit.Nothing(t, servers)
		})
	}
}

// Connecting takes several round trips. If they take longer than one call may, the connection is
// still made, for later calls.
func TestConnectionThatTakesLongerThanTheNodeTimeoutIsMadeAllTheSame(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 5, quorumlock.WithNodeTimeout(50*time.Millisecond), quorumlock.WithWait(2*time.Second))
		// A script takes 24 ms.
		testkit.Each(servers, func(s *embedded.Server) { s.Delay(12 * time.Millisecond) })
		lease := testkit.Lock(t, c.Mutex("x"))
		time.Sleep(time.Second) // by then the late ones have a connection, too
		testkit.Unlock(t, lease)
		// A script that was sent as its time ran out, at a node that was out of reach for its
		// release, is over with its TTL.
		time.Sleep(quorumlock.DefaultTTL)
		testkit.Nothing(t, servers)
	})
}

// Two nodes of five are far away, or do not answer for a while. If a hold ends before its attempt
// is sent to such a node, neither the attempt nor a release is sent there, and nothing is left
// behind. The client notices that a node does not answer, and that it answers again.
func TestShortHoldsAreNotSentToNodesThatAreBehind(t *testing.T) {
	for _, tt := range []struct {
		name string
		fall func(*embedded.Server)
		down int  // so many nodes are noticed to be down
		late bool // an attempt that was given up may run when the node goes on, after its release
	}{
		{"far away", func(s *embedded.Server) { s.Delay(50 * time.Millisecond) }, 0, false},
		{"stalled", (*embedded.Server).Stall, 2, true},
		{"silent", (*embedded.Server).Mute, 2, false},
	} {
		testkit.Run(t, tt.name, func(t *testing.T) {
			const callers, holds = 8, 100
			of := &testkit.Events{}
			c, servers := testkit.Client(t, 5, quorumlock.WithObserver(of))
			testkit.Warm(t, c)
			var before [5]int
			for i, s := range servers {
				before[i] = s.Ran("acquire") + s.Ran("release")
			}
			testkit.Each(servers[3:], tt.fall)
			var all sync.WaitGroup
			for i := range callers {
				all.Go(func() {
					for range holds {
						lease, err := c.Mutex(fmt.Sprint("own-", i)).Lock(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						time.Sleep(time.Millisecond)
						testkit.MustUnlock(t, lease)
					}
				})
			}
			all.Wait()
			time.Sleep(time.Second)
			asked, down := of.Of(quorumlock.EventNodeAsked), of.Of(quorumlock.EventNodeDown)
			if all := 5 * 2 * callers * holds; down != tt.down || asked > all*3/4 {
				t.Errorf("%d nodes are said to be down, want %d; %d calls of %d were sent, or failed", down, tt.down, asked, all)
			}
			testkit.Each(servers[3:], func(s *embedded.Server) { s.Delay(0); s.Resume() })
			if tt.late {
				time.Sleep(quorumlock.DefaultTTL)
			}
			time.Sleep(2 * time.Second)
			testkit.NoLocks(t, servers)
			for i, s := range servers {
				n := s.Ran("acquire") + s.Ran("release") - before[i]
				if all := 2 * callers * holds; i < 3 && n != all {
					t.Errorf("%s ran %d scripts, want %d", s.Name, n, all)
				} else if i >= 3 && n > all/3 {
					t.Errorf("%s ran %d scripts of %d, want a third at most", s.Name, n, all)
				}
			}
			testkit.Unlock(t, testkit.TryLock(t, c.Mutex("after")))
			time.Sleep(quorumlock.DefaultTTL)
			testkit.Equal(t, of.Of(quorumlock.EventNodeUp), tt.down, "nodes are said to be up again")
			testkit.Nothing(t, servers)
		})
	}
}
