package quorum

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

// paces are the locks for which a caller of a client has waited in vain since the last grant. The zero value is ready to use; it is guarded
// by the client's mu.
type paces struct {
	count atomic.Int32 // of entries; readable without mu: most clients have none
	of    map[paceKey]*pace
	sweep int // at how many entries those are dropped that no longer matter
}

// paceKey is a lock, whichever Lock value its callers use.
type paceKey struct {
	first Cell
	name  string
}

type pace struct {
	core.Pace
	held *quorumlock.HeldError // why the last caller gave up; nil if unknown
}

func (l *Lock) paceKey() paceKey { return paceKey{l.cells[0], l.name} }

// mayAsk reports whether a caller whose time ends with waiting asks the nodes: see core.Pace. A caller of a named owner always does,
// because another call may acquire the lock for that owner meanwhile.
func (l *Lock) mayAsk(waiting context.Context) bool {
	deadline, ends := waiting.Deadline()
	if !ends || l.set.Owner != "" || l.client.paces.count.Load() == 0 {
		return true
	}
	l.client.mu.Lock()
	p := l.client.paces.of[l.paceKey()]
	var known core.Pace
	if p != nil {
		known = p.Pace
	}
	l.client.mu.Unlock()
	if p == nil {
		return true
	}
	trip, best := l.client.health.nearest(l.nodes)
	return known.Admits(l.client.time().Mono, time.Until(deadline), trip, best)
}

// asked notes the outcome of a call that asked the nodes.
func (l *Lock) asked(waiting context.Context, lease *quorumlock.Lease, err error) {
	all := &l.client.paces
	if lease != nil && all.count.Load() == 0 || lease == nil && waiting.Err() == nil { // the latter did not give up
		return
	}
	now := l.client.time().Mono
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	defer func() { all.count.Store(int32(len(all.of))) }()
	if lease != nil {
		delete(all.of, l.paceKey())
		return
	}
	if len(all.of) >= all.sweep {
		maps.DeleteFunc(all.of, func(_ paceKey, p *pace) bool { return p.IsOver(now) })
		all.sweep = 64 + 2*len(all.of)
	}
	if all.of == nil {
		all.of = make(map[paceKey]*pace)
	}
	held, _ := errors.AsType[*quorumlock.HeldError](err)
	all.of[l.paceKey()] = &pace{core.LostAt(now), held}
}

// sitOut waits until the time of a caller is over, which does not ask the nodes. The caller has left the local queue.
func (l *Lock) sitOut(waiting context.Context, w *watch) error {
	w.note(quorumlock.StepQueued, nil)
	select {
	case <-waiting.Done():
		l.client.mu.Lock()
		defer l.client.mu.Unlock()
		if p := l.client.paces.of[l.paceKey()]; p != nil && p.held != nil {
			return errs.Join(waiting.Err(), p.held)
		}
		return waiting.Err()
	case <-l.client.stopping:
		return quorumlock.ErrClosed
	}
}
