package client

import (
	"context"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

const (
	firstLook   = 5 * time.Millisecond // the first pause between looks during a change; doubles
	longestLook = time.Second          // the longest pause between looks during a change
)

// Follow looks at a lock again and again, for the iterators over its states. It calls look at once,
// after each message about the value beside the lock, and when the pause that look has returned is
// over. look reads the nodes, and reports whether a change may be under way. Follow then looks
// again soon. It calls tell after each look without a change under way, and after each look once a
// change lasts for longer than the node timeout. So tell sees no state between two holders, but each
// that lasts.
//
// Follow returns when tell returns false, or ctx is done. It calls look when the client is closed,
// and tell with its result.
func (l *Lock) Follow(ctx context.Context, look func(ctx context.Context) (changing bool, pause time.Duration), tell func() (more bool)) {
	changed := make(chan struct{}, 1)
	defer l.Listen(wire.LeaderKey(l.Key(0)), func(string) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})()
	timer := time.NewTimer(0)
	defer timer.Stop()
	looks := 0 // number of looks during a change in a row
	var since time.Time
	for {
		select {
		case <-changed:
		case <-timer.C:
		case <-l.client.Closed():
		case <-ctx.Done():
			return
		}
		asked := time.Now()
		changing, pause := look(ctx)
		if ctx.Err() != nil {
			return
		}
		switch {
		case !changing:
			looks = 0
		case looks == 0:
			looks, since = 1, asked
		default:
			looks++
		}
		if (looks == 0 || time.Since(since) >= l.set.NodeTimeout) && !tell() {
			return
		}
		if looks > 0 {
			pause = min(firstLook<<min(looks-1, 10), longestLook)
		}
		timer.Reset(pause)
	}
}
