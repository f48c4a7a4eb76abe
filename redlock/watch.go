package redlock

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock"
)

// watchPause is the time between two looks of Watch without a message.
const watchPause = time.Second

// Watch returns an iterator over the holders of a lock: their present state first, and then each
// change. It takes neither the lock nor a place in its queue, and changes nothing at the nodes.
//
//	for in, err := range client.Watch(ctx, "myapp:lock:invoice:1042") {
//		switch {
//		case err != nil: // too few nodes answer: in is what the others say
//		case in.State.Held(): // a new holder, or new data
//		default: // the lock is free
//		}
//	}
//
// The lock may be a Mutex, an RWMutex or a Semaphore, as for [Client.Inspect], and each result is
// that of an Inspect. A change is another holder, another set of readers or of owners of slots, or
// other data; not a change of the TTL or the queue. The nodes publish the grants and the releases of
// holders with [quorumlock.WithData], and of leaders, so Watch yields these at once. It looks for
// other changes once a second, and at the expiry of the keys.
//
// A new holder may come first without its data. Watch may skip short states, such as a hold between
// two looks, and the time between two holders. It never skips the latest state. It yields an outage
// once, with a *[quorumlock.QuorumError], if the outage lasts for longer than the node timeout, and
// continues.
//
// The iteration ends when ctx is done, or with a permanent error, which comes last:
// [quorumlock.ErrClosed], [quorumlock.ErrNilContext], or the error of an invalid name or option. An
// iteration is for one goroutine; several iterations may run at the same time.
func (c *Client) Watch(ctx context.Context, name string, opts ...quorumlock.Option) iter.Seq2[Inspection, error] {
	return func(yield func(Inspection, error) bool) {
		m := c.Mutex(name, opts...)
		switch {
		case m.err != nil:
			yield(Inspection{}, m.err)
		case ctx == nil:
			yield(Inspection{}, quorumlock.ErrNilContext)
		default:
			w := &watcher{mutex: m, yield: yield}
			m.lock.Follow(ctx, w.look, w.tell)
		}
	}
}

// watcher is one iteration.
type watcher struct {
	mutex *Mutex
	yield func(Inspection, error) bool
	seen  Inspection // of the last look
	err   error      // likewise

	began   bool     // the first state was yielded
	holders []holder // of the last yielded state
	failed  bool     // the last yielded state had an error
}

// holder is one of the holders of a lock.
type holder struct {
	owner quorumlock.Owner
	slot  int // of a semaphore; -1 for a reader
	data  string
}

func holdersOf(s quorumlock.State) (all []holder) {
	if s.Owner != "" {
		all = append(all, holder{s.Owner, 0, s.Data})
	}
	for _, r := range s.Readers {
		all = append(all, holder{r.Owner, -1, ""})
	}
	for _, s := range s.Slots {
		all = append(all, holder{s.Owner, s.Number, ""})
	}
	return all
}

// look inspects the lock. A change is under way if too few nodes answer, if the holder has lost its
// data, or if a node has a holder that no quorum has.
func (w *watcher) look(ctx context.Context) (changing bool, pause time.Duration) {
	c := w.mutex.client
	if w.err = c.locks.Begin(); w.err != nil {
		return false, 0
	}
	defer c.locks.End()
	w.seen, w.err = c.inspect(ctx, w.mutex)
	s := w.seen.State
	pause = watchPause
	if s.TTL > 0 {
		pause = min(pause, s.TTL+time.Millisecond)
	}
	gone := len(w.holders) == 1 && w.holders[0].owner == s.Owner && w.holders[0].data != "" && s.Data == "" // its release is under way
	return w.err != nil || gone || s.Owner == "" && split(w.seen), pause
}

// split reports whether a node has a holder that no quorum has.
func split(in Inspection) bool {
	known := make(map[holder]bool)
	for _, h := range holdersOf(in.State) {
		known[h] = true
	}
	return slices.ContainsFunc(in.Nodes, func(n NodeState) bool {
		return slices.ContainsFunc(holdersOf(n.State), func(h holder) bool { return !known[h] })
	})
}

// tell yields the last look if it is news.
func (w *watcher) tell() (more bool) {
	holders := holdersOf(w.seen.State)
	switch {
	case errors.Is(w.err, quorumlock.ErrClosed):
		w.yield(Inspection{}, quorumlock.ErrClosed)
		return false
	case w.began && w.failed && w.err != nil, w.began && !w.failed && w.err == nil && slices.Equal(holders, w.holders):
		return true
	}
	w.began, w.holders, w.failed = true, holders, w.err != nil
	return w.yield(w.seen, w.err)
}
