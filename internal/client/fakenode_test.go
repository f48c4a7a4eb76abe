package client_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// yes is a node that confirms every request after a millisecond, unless it is gone or frozen. Its
// tests are about the number and the order of requests, at a load beyond an embedded server.
type yes struct {
	name string

	mu       sync.Mutex
	gone     error // the error of its calls; nil while it is up
	frozen   bool  // its calls fail at the end of their limits
	flight   int   // background calls under way
	most     int   // at one time
	asked    int
	sent     int // writes with background calls
	batch    int // the most calls in one of these
	released int // releases run
}

func (n *yes) String() string { return n.name }

func (n *yes) Listen(string, func(string)) (stop func()) { return func() {} }

func yeses(n int) (nodes []*yes) {
	for i := range n {
		nodes = append(nodes, &yes{name: fmt.Sprint("node-", i+1)})
	}
	return nodes
}

func (n *yes) Do(_ context.Context, lane client.Lane, limit time.Duration, calls []wire.Call, answer func([]wire.Reply)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	after := time.Millisecond
	replies := make([]wire.Reply, len(calls))
	for i, c := range calls {
		release := c.Script == wire.Release("", "", 0).Script
		switch {
		case n.frozen:
			replies[i].Err, after = context.DeadlineExceeded, limit
		case n.gone != nil:
			replies[i].Err = n.gone
		case release:
			n.released++
			replies[i].Value = int64(0)
		default:
			replies[i].Value = int64(1)
		}
	}
	behind := 0
	if lane != client.Foreground {
		behind = len(calls)
		n.sent++
	}
	n.flight, n.asked = n.flight+behind, n.asked+behind
	n.most, n.batch = max(n.most, n.flight), max(n.batch, behind)
	time.AfterFunc(after, func() {
		n.mu.Lock()
		n.flight -= behind
		n.mu.Unlock()
		answer(replies)
	})
}

// become makes its calls fail with an error, or none, and begins to count.
func (n *yes) become(gone error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gone, n.asked, n.sent, n.batch, n.released = gone, 0, 0, 0, 0
}

func (n *yes) freeze(frozen bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.frozen = frozen
}

func (n *yes) counts() (asked, sent, batch, released int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked, n.sent, n.batch, n.released
}

// newClient returns a client that is closed with the test.
func newClient(t testing.TB) *client.Client {
	c := client.NewClient("test")
	t.Cleanup(c.Close)
	return c
}
