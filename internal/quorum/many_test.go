package quorum_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/scripts"
)

// yes is a node that does whatever it is asked: what is looked at here is how it is asked, and by how
// many goroutines, when there is more to do than an embedded server could.
type yes struct {
	name string

	mu     sync.Mutex
	sizes  []int // of the round trips, in scripts
	flight int   // round trips under way
	most   int   // at one time
}

func (n *yes) String() string { return n.name }

func (n *yes) Send(_ context.Context, calls ...scripts.Call) []scripts.Reply {
	n.mu.Lock()
	n.sizes = append(n.sizes, len(calls))
	n.flight++
	n.most = max(n.most, n.flight)
	n.mu.Unlock()
	time.Sleep(time.Millisecond)
	n.mu.Lock()
	n.flight--
	n.mu.Unlock()
	replies := make([]scripts.Reply, len(calls))
	for i, c := range calls {
		switch c.Script {
		case scripts.Acquire("", "", 0, 0, 0).Script:
			replies[i].Value = []any{int64(1), int64(1)}
		case scripts.Release("", "", 0).Script:
			replies[i].Value = []any{int64(0), int64(0)}
		default:
			replies[i].Value = int64(1)
		}
	}
	return replies
}

func (n *yes) Listen(string, func(string)) (stop func()) { return func() {} }

// trips returns the sizes of the round trips since it was called last, and how many there were at once.
func (n *yes) trips() (sizes []int, most int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	sizes, most = n.sizes, n.most
	n.sizes, n.most = nil, 0
	return sizes, most
}

// 10,000 leases of one client cost no goroutine between the ticks of the watchdog, and are renewed
// together: in pipelines of five hundred, one after the other, by one goroutine a node.
func TestTenThousandLeasesAreRenewedInPipelinesWithoutGoroutines(t *testing.T) {
	// While it frees the stacks of goroutines that are gone, the collector has them counted as alive.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	synctest.Test(t, func(t *testing.T) {
		const leases = 10_000
		const ending = 5 // goroutines that may not quite have ended, or are the runtime's
		set, err := quorumlock.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		nodes := make([]*yes, 5)
		for i := range nodes {
			nodes[i] = &yes{name: fmt.Sprint("node-", i+1)}
		}
		c := quorum.NewClient("test")
		defer c.Close()
		before := runtime.NumGoroutine()
		held := make([]*quorumlock.Lease, leases)
		var wg sync.WaitGroup
		for i := range held {
			wg.Go(func() {
				name := fmt.Sprint("lease-", i)
				cells := make([]quorum.Cell, len(nodes))
				for j, n := range nodes {
					cells[j] = quorum.Cell{Node: n, Name: name}
				}
				lease, err := quorum.New(c, name, quorum.Majority(3, 5), cells, set, nil).TryLock(t.Context())
				if err != nil {
					t.Error(err)
				}
				held[i] = lease
			})
		}
		wg.Wait()
		idle := func(when string) {
			t.Helper()
			synctest.Wait()
			if n := runtime.NumGoroutine() - before; n > ending {
				t.Errorf("%d goroutines more %s than with no lease:\n%v", n, when, locktest.Goroutines())
			}
		}
		idle("before the first tick")
		for _, n := range nodes {
			n.trips()
		}
		for tick := range 3 {
			deadline := held[0].ValidUntil()
			for held[0].ValidUntil().Equal(deadline) {
				time.Sleep(500 * time.Microsecond)
				if n := runtime.NumGoroutine() - before; n > len(nodes)+ending {
					t.Fatalf("%d goroutines while renewing, want one a node", n)
				}
			}
			time.Sleep(100 * time.Millisecond)
			idle(fmt.Sprint("after tick ", tick+1))
			for _, n := range nodes {
				sizes, most := n.trips()
				if most != 1 || !slices.Equal(sizes, slices.Repeat([]int{500}, leases/500)) {
					t.Errorf("%s was sent %v scripts, %d at once: want 20 times 500, one after the other", n, sizes, most)
				}
			}
		}
		for _, l := range held {
			locktest.Held(t, l)
		}
	})
}

// Leases that were acquired at different moments gather in common rounds.
func TestLeasesGatherInCommonRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const leases = 100
		set, err := quorumlock.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		n := &yes{name: "node"}
		c := quorum.NewClient("test")
		defer c.Close()
		for i := range leases {
			name := fmt.Sprint("lease-", i)
			if _, err := quorum.New(c, name, quorum.Tree{}, []quorum.Cell{{Node: n, Name: name}}, set, nil).TryLock(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond) // over more than a renewal takes to be due
		}
		time.Sleep(set.TTL)
		n.trips()
		time.Sleep(10 * set.TTL)
		sizes, _ := n.trips()
		renewals := 0
		for _, size := range sizes {
			renewals += size
		}
		if renewals < 30*leases {
			t.Errorf("%d renewals of %d leases in ten times their TTL, want three in each", renewals, leases)
		}
		if each := renewals / len(sizes); each < 10 {
			t.Errorf("%d leases a round trip, want them together", each)
		}
	})
}
