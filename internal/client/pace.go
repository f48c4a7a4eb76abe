package client

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/errs"
)

// paces has the locks with a caller that gave up since the last grant. It is guarded by Client.mu;
// count may be read without it. The zero value is ready to use.
type paces struct {
	count atomic.Int32 // len(of); most clients have none, and skip mu
	of    map[paceKey]*pace
	sweep int // length of of at which ended pauses are dropped
}

// paceKey identifies a lock, whichever Lock value its callers use.
type paceKey struct {
	first Cell
	name  string
}

type pace struct {
	core.Pace
	reason error         // a *HeldError or a *QuorumError of the last caller that gave up; nil if unknown
	over   chan struct{} // closed at the end of the pause by a grant or by the end of a hold
}

func (l *Lock) paceKey() paceKey { return paceKey{l.cells[0], l.name} }

// mayAsk reports whether a caller that gives up when waiting is done asks the nodes: see core.Pace.
// A caller of a named owner always does: another call may acquire the lock for that owner.
func (l *Lock) mayAsk(waiting context.Context) bool {
	deadline, ends := waiting.Deadline()
	if !ends || l.set.Owner != "" || l.client.paces.count.Load() == 0 {
		return true
	}
	trip, best := l.client.health.nearest(l.nodes)
	return l.pace().Admits(l.client.mono(), time.Until(deadline), trip, best)
}

// pace returns the pace of the lock: the zero value if no caller has given up.
func (l *Lock) pace() pace {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	if p := l.client.paces.of[l.paceKey()]; p != nil {
		return *p
	}
	return pace{}
}

// asked records the outcome of a call that asked the nodes.
func (l *Lock) asked(waiting context.Context, lease *quorumlock.Lease, err error) {
	all := &l.client.paces
	// Neither a grant that ends a pause, nor a caller that has given up.
	if lease != nil && all.count.Load() == 0 || lease == nil && waiting.Err() == nil {
		return
	}
	now := l.client.mono()
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	if lease != nil {
		all.end(l)
		return
	}
	defer func() { all.count.Store(int32(len(all.of))) }()
	if len(all.of) >= all.sweep {
		maps.DeleteFunc(all.of, func(_ paceKey, p *pace) bool { return p.IsOver(now) }) // a caller that waits for over then waits until its deadline, which is near
		all.sweep = 64 + 2*len(all.of)
	}
	if all.of == nil {
		all.of = make(map[paceKey]*pace)
	}
	over := make(chan struct{})
	if p := all.of[l.paceKey()]; p != nil {
		over = p.over
	}
	all.of[l.paceKey()] = &pace{core.LostAt(now), reasonOf(err), over}
}

// end ends the pause of a lock: this process was granted it, or its hold has ended. The caller
// holds Client.mu.
func (all *paces) end(l *Lock) {
	if p := all.of[l.paceKey()]; p != nil {
		close(p.over)
		delete(all.of, l.paceKey())
		all.count.Store(int32(len(all.of)))
	}
}

// reasonOf returns the *QuorumError or the *HeldError in an error; nil if it has neither.
func reasonOf(err error) error {
	if few, ok := errors.AsType[*quorumlock.QuorumError](err); ok {
		return few
	}
	if held, ok := errors.AsType[*quorumlock.HeldError](err); ok {
		own := *held // its caller may add the data of the holder: see withData
		return &own
	}
	return nil
}

// sitOut waits for the end of the pause, and returns nil. If too little time would be left then, it
// waits until waiting is done, and returns the error. The caller has left the local queue.
func (l *Lock) sitOut(waiting context.Context) error {
	p, now := l.pace(), l.client.mono()
	trip, _ := l.client.health.nearest(l.nodes)
	deadline, _ := waiting.Deadline()
	pause, ok := p.Pause(now, time.Until(deadline), trip)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	over := timer.C
	if !ok {
		over = nil
	}
	select {
	case <-over:
		return nil
	case <-p.over:
		return nil
	case <-waiting.Done():
		return errs.Join(waiting.Err(), p.reasonAfter(l.client.mono()-now))
	case <-l.client.stopping:
		return quorumlock.ErrClosed
	}
}

// reasonAfter returns the reason as of some time later. Its position was that of another caller.
func (p pace) reasonAfter(passed time.Duration) error {
	held, ok := p.reason.(*quorumlock.HeldError) //nolint:errorlint // reasonOf unwraps it
	if !ok {
		return p.reason
	}
	now := *held
	now.Position, now.TTL = 0, max(held.TTL-passed, 0)
	return &now
}
