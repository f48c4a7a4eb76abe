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
	firstLook   = 5 * time.Millisecond // until the next look where a change is under way; doubles with each look
	longestLook = time.Second          // it grows to this
)

// Observe returns an iterator over who leads: first as it is now, and then whenever it has changed.
//
//	for leader, err := range e.Observe(ctx) {
//		switch {
//		case err == nil: // leader.Sure, as a rule: a new leader, or a new value
//		case errors.Is(err, election.ErrNoLeader): // nobody leads
//		default: // too few nodes answer: the leader is not known, or a guess
//		}
//	}
//
// A new leader, a new value and a Resign are told at once: the nodes publish them. The end of a leader that died is told
// when its keys expire, and what no message told, such as a ForceUnlock, within a TTL. What is not certain, such as a
// change under way or an outage, is told if it lasts for longer than the node timeout after the next look, which may come a
// TTL later. An outage is told once, and the iteration goes on. It ends only when ctx is done, when the loop is left, or with an error that waiting does not cure,
// which comes last: [quorumlock.ErrClosed], [quorumlock.ErrNilContext], or what is wrong with the arguments of [New].
//
// It may skip what lasts for a moment: a leader or a value that the next has replaced before the loop came round, and
// the time between two leaders. It does not skip the latest state. What it tells is never older than what it told
// before: the tokens of sure leaders rise, and so do the versions of one leader's values.
//
// An iteration is for one goroutine. It costs a read of all nodes for each change, and one a TTL besides. It leaves
// nothing behind. Several iterations may run at the same time.
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
	changed  chan struct{} // the nodes may know something new; capacity 1
	began    bool          // something was told
	leader   Leader        // the last that was told
	err      error         // along with it
	latest   Leader        // that was told, by token and version
}

// heard is called with every message. It says only that a look is due.
func (o *observer) heard(string) {
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

func (o *observer) run(ctx context.Context, yield func(Leader, error) bool) {
	looks := 0 // in a row at what is not certain
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
			if err == nil { // another look will tell
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

// pause is how long the next look waits for a message.
func (o *observer) pause(v view, looks int) time.Duration {
	switch {
	case looks > 0:
		return min(firstLook<<min(looks-1, 10), longestLook)
	case v.leader.Sure: // until its keys expire, unless it renews
		return v.leader.TTL + time.Millisecond
	}
	return o.election.set.TTL
}

// isOlder reports whether a guess is older than what was told.
func (o *observer) isOlder(l Leader) bool {
	if l.Sure || l.Owner == "" || l.Token > o.latest.Token {
		return false
	}
	return l.Token < o.latest.Token || l.Version < o.latest.Version
}

// isNews reports whether something else was told last.
func (o *observer) isNews(l Leader, err error) bool {
	switch {
	case !o.began || what(err) != what(o.err):
		return true
	case what(err) == errUnknown: // one outage, in which a node may come and go; a later leader or value is news
		return l.Token > o.latest.Token || l.Token == o.latest.Token && l.Version > o.latest.Version
	}
	return l.Owner != o.leader.Owner || l.Version != o.leader.Version || l.Sure != o.leader.Sure
}

// what tells apart the outcomes of a look.
func what(err error) error {
	if err == nil || errors.Is(err, ErrNoLeader) {
		return err
	}
	return errUnknown
}

// errUnknown stands for an outage.
var errUnknown = errors.New("too few nodes answered")
