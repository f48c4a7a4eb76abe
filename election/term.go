package election

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/errs"
)

// Term is the time in which a candidate leads, from the grant of the lock to its release or loss.
// It is safe for concurrent use; its zero value is not usable. A copy of a Term is the same term.
type Term struct{ *term }

// term is the state that all copies of a Term share.
type term struct {
	first    Term // the term in its contexts, for every copy
	election *Election
	outer    *Term // the term that the context descends from, or nil
	lease    *quorumlock.Lease
	ctx      context.Context // of the leader's work
	end      context.CancelCauseFunc
	serves   bool          // a lead function of Run runs in the term
	kick     chan struct{} // wakes the keeper; capacity 1
	drained  chan struct{} // closed at the end of the work: the lock may be released
	drain    sync.Once     // closes drained
	over     chan struct{} // closed when the lock is released or lost, and the keeper has ended
	err      error         // of the release; set before over is closed

	mu      sync.Mutex
	value   string
	version uint64 // of the value; rises with every Proclaim
	told    uint64 // the highest version at a quorum
	round   *round // the latest
	due     time.Time
	callers []*proclaimer // the proclaimers that wait for a quorum
	ended   time.Time     // when the keeper saw the end of the context; zero before
}

// termKey is the key of the term in its context.
type termKey struct{}

func newTerm(ctx context.Context, e *Election, lease *quorumlock.Lease, serves bool) *Term {
	outer, _ := TermOf(ctx)
	t := &term{
		election: e, outer: outer, lease: lease, serves: serves, value: e.value, version: 1,
		kick: make(chan struct{}, 1), drained: make(chan struct{}), over: make(chan struct{}),
	}
	t.first.term = t
	t.ctx, t.end = context.WithCancelCause(context.WithValue(lease.Context(), termKey{}, &t.first))
	return &t.first
}

// TermOf returns the term that ctx descends from. A lead function uses it to get its fencing token.
func TermOf(ctx context.Context) (t *Term, ok bool) {
	if ctx == nil {
		return nil, false
	}
	t, ok = ctx.Value(termKey{}).(*Term)
	return t, ok
}

// Context returns the context for the leader's work. It is cancelled before another candidate can
// lead. The causes are the deadline of the lease or its earlier loss, Resign, the client's
// Shutdown, and the ctx of Campaign or Run. Its [context.Cause] is a *[quorumlock.LostError],
// [ErrResigned], or the cause of ctx.
func (t *Term) Context() context.Context {
	t.look()
	return t.ctx
}

// Err returns nil while the term lasts, and then the cause of the term's context. Like every call
// of the term, it compares the clock with the deadline of the lease. The timer of the context may
// be late after a pause of the process.
func (t *Term) Err() error {
	t.look()
	return context.Cause(t.ctx)
}

// look cancels the context of a term if its lease is over.
func (t *Term) look() {
	if t.ctx.Err() == nil && !time.Now().Before(t.lease.ValidUntil()) {
		t.end(&quorumlock.LostError{Name: t.election.Name(), Owner: t.lease.Owner(), Reason: "it was not renewed in time"})
	}
}

// Token returns the fencing token, which is higher than the token of every earlier leader. It is
// constant for the whole term. Send it with every write, to a resource that refuses tokens lower
// than the highest so far.
func (t *Term) Token() uint64 { return t.lease.Token() }

// Owner returns the owner of the lock, as in the results of Leader and Inspect.
func (t *Term) Owner() quorumlock.Owner { return t.lease.Owner() }

// ValidUntil returns the end of the leadership without further renewals, on this process's clock.
func (t *Term) ValidUntil() time.Time { return t.lease.ValidUntil() }

// Value returns the last proclaimed value.
func (t *Term) Value() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.value
}

// Resign ends the term. It cancels the term's context, waits until the lead function of Run has
// returned, and releases the lock, so that the next candidate leads at once. If the lead function
// does not return within a TTL, the lock is released all the same and Resign returns
// [ErrNotDrained]. The next leader begins, and only the fencing token separates the two. Without a
// Run, end the work first: Resign releases at once. It also releases leases of the lock that the
// work acquired with the term's context and did not unlock.
//
// A ctx that is done does not stop Resign, so Resign is safe to defer. If ctx is done while the
// lead function runs, Resign returns ctx's error, and the release follows without it. If ctx
// descends from the term's own context, the caller is part of the work. Then Resign returns nil at
// once, and the lock is released when the lead function has returned.
//
// Resign returns [quorumlock.ErrLost] if the leadership was lost before, and a
// *[quorumlock.QuorumError] if too few nodes confirmed the release: the others expire the lock with
// its TTL. Repeated calls return the same result. With a nil ctx, Resign ends the term and returns
// [quorumlock.ErrNilContext], joined with the error of the release, if any. Resign of a nil term
// returns [ErrNotLeader], so that it may be deferred before the error of Campaign is known.
func (t *Term) Resign(ctx context.Context) error {
	if t == nil || t.term == nil {
		return ErrNotLeader
	}
	_, err := t.resign(ctx)
	return err
}

// resign also reports whether err is the final result of the term.
func (t *Term) resign(ctx context.Context) (over bool, err error) {
	if ctx == nil {
		over, err = t.resign(context.Background())
		return over, errs.Join(quorumlock.ErrNilContext, err)
	}
	t.look()
	t.end(ErrResigned)
	if !t.serves {
		t.finished()
		<-t.over
		return true, t.err
	}
	for own, _ := TermOf(ctx); own != nil; own = own.outer {
		if own.term == t.term {
			return false, nil
		}
	}
	select {
	case <-t.over:
	case <-ctx.Done():
		select {
		case <-t.over:
		default:
			return false, ctx.Err()
		}
	}
	return true, t.err
}

// finished marks the end of the work.
func (t *Term) finished() { t.drain.Do(func() { close(t.drained) }) }

// keep is the goroutine of a term. It writes the value to the nodes until the lock is released or
// lost.
func (t *Term) keep() {
	defer close(t.over)
	timer := time.NewTimer(0)
	defer timer.Stop()
	client := t.election.lock.Client()
	ended, stopping, closed := t.ctx.Done(), client.Stopping(), client.Closed()
	var limit <-chan time.Time // ends the wait for the work after the end of the context
	for {
		select {
		case <-t.drained:
			t.err = t.release()
			return
		case <-closed: // the lock is lost, even if the work continues
			t.sawEnd()
			t.err = t.release()
			return
		case <-stopping: // Shutdown waits for the term
			stopping = nil
			t.end(ErrResigned)
		case <-limit:
			t.err = errs.Join(ErrNotDrained, t.release())
			t.election.set.Logger.Warn("quorumlock: released while the leader was still at work", "lock", t.election.Name(), "owner", t.Owner(), "token", t.Token())
			return
		case <-ended:
			ended = nil
			t.sawEnd()
			if t.loss() != nil {
				t.err = t.release()
				return
			}
			limit = time.After(t.election.set.TTL)
		case <-timer.C:
			t.tell(false)
		case <-t.kick:
			t.mu.Lock()
			fresh, due := t.round == nil || t.round.version != t.version, t.due
			t.mu.Unlock()
			if fresh {
				t.tell(true)
			} else {
				timer.Reset(time.Until(due))
			}
		}
	}
}

// sawEnd records the time of the context's end, once.
func (t *Term) sawEnd() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended.IsZero() {
		t.ended = time.Now()
	}
}

// release withdraws the value and releases the lock. The context has ended before, and so has the
// work, if it ended in time.
func (t *Term) release() error {
	t.end(ErrResigned)
	t.withdraw()
	err := t.lease.Unlock(context.Background())
	if t.lease.HoldCount() > 0 { // the work has leases of the lock
		if ended := client.Resign(t.lease); err == nil {
			err = ended
		}
	}
	if loss := t.loss(); loss != nil && !errors.Is(err, quorumlock.ErrLost) {
		return loss
	}
	return err
}

// loss returns the reason of a lost leadership, or nil. If the context descends from a lease of
// another lock, the loss of that lock also ends the work. It does not end the leadership: the work
// may finish first.
func (t *Term) loss() error {
	if e, ok := errors.AsType[*quorumlock.LostError](context.Cause(t.ctx)); ok && e.Owner == t.Owner() {
		return e
	}
	return nil
}

// String returns the term in one line, for people.
func (t *Term) String() string {
	if t == nil || t.term == nil {
		return "no term"
	}
	return "term with the " + t.lease.String()
}

// LogValue returns the log value of the lease. It makes a Term a [slog.LogValuer].
func (t *Term) LogValue() slog.Value {
	if t == nil || t.term == nil {
		return slog.StringValue(t.String())
	}
	return t.lease.LogValue()
}
