package election

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/quorumlock/quorumlock"
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
		o := &observer{election: e, yield: yield}
		e.lock.Follow(ctx, o.look, o.tell)
	}
}

// observer is one iteration.
type observer struct {
	election *Election
	yield    func(Leader, error) bool
	seen     view // of the last look
	seenErr  error
	began    bool   // the first state was yielded
	leader   Leader // of the last yielded state
	err      error  // likewise
	latest   Leader // the highest yielded by token and version
}

// look reads the nodes. Without a message, the next look is at the expiry of the leader's keys.
func (o *observer) look(ctx context.Context) (changing bool, pause time.Duration) {
	o.seen, o.seenErr = o.election.look(ctx)
	if o.seen.leader.Sure {
		return o.seen.pending, o.seen.leader.TTL + time.Millisecond
	}
	return o.seen.pending, o.election.set.TTL
}

// tell yields the last look if it is news.
func (o *observer) tell() (more bool) {
	l, err := o.seen.leader, o.seenErr
	if errors.Is(err, quorumlock.ErrClosed) {
		o.yield(Leader{}, quorumlock.ErrClosed)
		return false
	}
	if o.isOlder(l) {
		if err == nil { // look again
			return true
		}
		l = Leader{}
	}
	if !o.isNews(l, err) {
		return true
	}
	o.began, o.leader, o.err = true, l, err
	if l.Token > 0 {
		o.latest = l
	}
	return o.yield(l, err)
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
