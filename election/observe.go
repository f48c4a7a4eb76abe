package election

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

const (
	firstLook   = 5 * time.Millisecond // the first pause between looks during a change; doubles
	longestLook = time.Second          // the longest pause between looks during a change
)

// Observe returns an iterator over the leader: its present state first, and then each change.
//
//	for leader, err := range e.Observe(ctx) {
//		switch {
//		case err == nil: // leader.Sure, as a rule: a new leader, or a new value
//		case errors.Is(err, election.ErrNoLeader): // there is no leader
//		default: // too few nodes answer: the leader is unknown, or a guess
//		}
//	}
//
// The nodes publish a new leader, a new value and a Resign, so Observe yields these at once. It
// yields the end of a dead leader at the expiry of its keys, and an unpublished change, such as a
// ForceUnlock, within a TTL. It yields an uncertain state, such as an outage, if the state lasts
// for longer than the node timeout after the next read. That read may come a TTL later. Observe
// yields an outage once, and continues.
//
// The iteration ends when ctx is done, or with a permanent error, which comes last:
// [quorumlock.ErrClosed], [quorumlock.ErrNilContext], or the error of invalid arguments of [New].
//
// Observe may skip short states: a leader or a value that is replaced before the next iteration,
// and the time between two leaders. It never skips the latest state, and never goes back: the
// tokens of sure leaders rise, and so do the versions of one leader's values.
//
// An iteration is for one goroutine; several iterations may run at the same time. An iteration
// costs a read of all nodes for each change, and one more for each TTL. It leaves nothing on the
// nodes.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if err := e.check(ctx); err != nil {
			yield(Leader{}, err)
			return
		}
		o := &observer{election: e, changed: make(chan struct{}, 1)}
		defer e.lock.Listen(wire.LeaderKey(e.key), o.heard)()
		o.run(ctx, yield)
	}
}

// observer is one iteration.
type observer struct {
	election *Election
	changed  chan struct{} // the nodes may have a change; capacity 1
	began    bool          // the first state was yielded
	leader   Leader        // of the last yielded state
	err      error         // likewise
	latest   Leader        // the highest yielded by token and version
}

// heard is called with every message. The next look is then due.
func (o *observer) heard(string) {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

func (o *observer) run(ctx context.Context, yield func(Leader, error) bool) {
	looks := 0 // number of uncertain looks in a row
	var since time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-o.changed:
		case <-timer.C:
		case <-o.election.lock.Client().Closed():
		case <-ctx.Done():
			return
		}
		asked := time.Now()
		v, err := o.election.look(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, quorumlock.ErrClosed) {
			yield(Leader{}, quorumlock.ErrClosed)
			return
		}
		switch {
		case !v.pending:
			looks = 0
		case looks == 0:
			looks, since = 1, asked
		default:
			looks++
		}
		if o.isOlder(v.leader) {
			v.leader = Leader{}
			if err == nil { // look again
				timer.Reset(o.pause(v, looks))
				continue
			}
		}
		if (looks == 0 || time.Since(since) >= o.election.set.NodeTimeout) && o.isNews(v.leader, err) {
			o.began, o.leader, o.err = true, v.leader, err
			if v.leader.Token > 0 {
				o.latest = v.leader
			}
			if !yield(v.leader, err) {
				return
			}
		}
		timer.Reset(o.pause(v, looks))
	}
}

// pause returns the time until the next look, if no message comes first.
func (o *observer) pause(v view, looks int) time.Duration {
	switch {
	case looks > 0:
		return min(firstLook<<min(looks-1, 10), longestLook)
	case v.leader.Sure: // until its keys expire, unless they are renewed
		return v.leader.TTL + time.Millisecond
	}
	return o.election.set.TTL
}

// isOlder reports whether a guess is older than a yielded state.
func (o *observer) isOlder(l Leader) bool {
	if l.Sure || l.Owner == "" || l.Token > o.latest.Token {
		return false
	}
	return l.Token < o.latest.Token || l.Version < o.latest.Version
}

// isNews reports whether the state differs from the last yielded one.
func (o *observer) isNews(l Leader, err error) bool {
	switch {
	case !o.began || outcome(err) != outcome(o.err):
		return true
	case outcome(err) == errUnknown: // in an outage, only a later leader or value is news
		return l.Token > o.latest.Token || l.Token == o.latest.Token && l.Version > o.latest.Version
	}
	return l.Owner != o.leader.Owner || l.Version != o.leader.Version || l.Sure != o.leader.Sure
}

// outcome returns the class of a look's error.
func outcome(err error) error {
	if err == nil || errors.Is(err, ErrNoLeader) {
		return err
	}
	return errUnknown
}

// errUnknown stands for an outage.
var errUnknown = errors.New("too few nodes answered")
