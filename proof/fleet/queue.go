package fleet

import (
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// eventKind is the kind of an event of the world.
type eventKind uint8

const (
	stepClient eventKind = iota
	wakeClient
	callArrives
	replyArrives
	subscribeArrives
	beginFault
	endFault
	doIt
)

// event is something that is to happen.
type event struct {
	at     time.Duration
	number uint64 // of two at the same time, that which was made first happens first
	kind   eventKind
	client int
	node   int
	on     *connection
	turn   bool // the node has run the calls before it
	source bool // the call has the source of its script along
	do     func()
	call   *wire.Call
	of     Event
	fault  *Fault
	next   *event // in the list of unused ones
}

// event returns an event that is to be pushed.
func (w *World) event(kind eventKind, at time.Duration) *event {
	e := w.unused
	if e == nil {
		e = new(event)
	} else {
		w.unused = e.next
		*e = event{}
	}
	w.last++
	e.kind, e.at, e.number = kind, max(at, w.now), w.last
	return e
}

func (w *World) free(e *event) { e.next, w.unused = w.unused, e }

func (e *event) before(f *event) bool { return e.at < f.at || e.at == f.at && e.number < f.number }

func (w *World) push(e *event) {
	w.queue = append(w.queue, e)
	i := len(w.queue) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if w.queue[parent].before(e) {
			break
		}
		w.queue[i] = w.queue[parent]
		i = parent
	}
	w.queue[i] = e
}

func (w *World) pop() *event {
	first, n := w.queue[0], len(w.queue)-1
	e := w.queue[n]
	w.queue[n] = nil
	w.queue = w.queue[:n]
	i := 0
	for 2*i+1 < n {
		child := 2*i + 1
		if child+1 < n && w.queue[child+1].before(w.queue[child]) {
			child++
		}
		if e.before(w.queue[child]) {
			break
		}
		w.queue[i] = w.queue[child]
		i = child
	}
	if n > 0 {
		w.queue[i] = e
	}
	return first
}
