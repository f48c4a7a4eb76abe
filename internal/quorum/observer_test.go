//go:build !race

// The race detector makes pools drop memory, so there are more allocations.

package quorum_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// prompt is yes, but it answers at once and makes no garbage.
type prompt struct {
	yes
	replies [8]wire.Reply
}

func (n *prompt) Do(_ context.Context, _ quorum.Lane, _ time.Time, calls []wire.Call, answer func([]wire.Reply)) {
	for i := range calls {
		n.replies[i] = wire.Reply{Value: one}
		if calls[i].Script == release {
			n.replies[i].Value = zero
		}
	}
	answer(n.replies[:len(calls)])
}

var (
	release   = wire.Release("", "", 0).Script
	one, zero = any(int64(1)), any(int64(0))
)

// pairs locks and unlocks a lock of three prompt nodes.
func pairs(tb testing.TB, opts ...quorumlock.Option) (pair func()) {
	nodes := make([]*prompt, 3)
	for i := range nodes {
		nodes[i] = &prompt{yes: yes{name: fmt.Sprint("node-", i+1)}}
	}
	l := lockAt(tb, newClient(tb), "x", nodes, opts...)
	ctx := context.Background()
	return func() {
		lease, err := l.Lock(ctx)
		if err == nil {
			err = lease.Unlock(ctx)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// unobserved is the number of allocations of a Lock and Unlock without an Observer. It may only
// fall.
const unobserved = 22

func TestNobodyObservingCostsNoAllocation(t *testing.T) {
	if n := testing.AllocsPerRun(1000, pairs(t)); n > unobserved {
		t.Errorf("a Lock and Unlock take %v allocations, want %v", n, unobserved)
	}
}

func BenchmarkUnobserved(b *testing.B) {
	pair := pairs(b)
	b.ReportAllocs()
	for b.Loop() {
		pair()
	}
}

// silent observes and does nothing.
type silent struct{}

func (silent) Begin(ctx context.Context, _ string) context.Context { return ctx }
func (silent) Observe(context.Context, quorumlock.Event)           {}

func BenchmarkObserved(b *testing.B) {
	pair := pairs(b, quorumlock.WithObserver(silent{}))
	b.ReportAllocs()
	for b.Loop() {
		pair()
	}
}
