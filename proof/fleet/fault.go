package fleet

import (
	"time"

	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// Fault is something that goes wrong.
type Fault struct {
	Kind   FaultKind
	At     time.Duration // true time since the beginning
	For    time.Duration // 0 for a fault of one instant
	Node   int           // -1 all, where a client is concerned
	Client int           // -1 all, where a node is concerned
	By     time.Duration // of a step
	Key    string        // of an eviction
}

// FaultKind is the kind of a fault.
type FaultKind uint8

// The kinds of faults.
const (
	Crash     FaultKind = iota // the node is down, and comes back with its data
	CrashLoss                  // the node is down, and comes back without its data
	Failover                   // the node is down; its replica takes its place, with its data
	// The node runs nothing and accepts no connection; at the thaw it runs its backlog.
	Freeze
	Forget        // the node loses all keys at once
	Evict         // the node loses one key
	Step          // the clock of the node is set forward or back
	Cut           // nothing arrives between a client and a node, either way
	CutThere      // no call arrives
	CutBack       // no reply or message arrives
	Stall         // calls arrive only afterwards
	Pause         // the client stands still; at the end, it gets all its events
	Sleep         // as Pause, and the client's monotonic clock stands still, too
	StepWall      // the wall clock of the client is set forward or back
	ForgetScripts // the node forgets its scripts
)

// Suffer begins a fault now.
func (w *World) Suffer(f *Fault) {
	begin, end := w.event(beginFault, w.now), w.event(endFault, w.now+f.For)
	begin.fault, end.fault = f, f
	w.push(begin)
	w.push(end)
}

func (w *World) begin(f Fault) {
	switch f.Kind {
	case Crash, CrashLoss, Failover:
		w.nodes[f.Node].down++
		for i := range w.clients {
			w.breakLinks(i, f.Node, ErrBroken)
		}
		w.connect(f.Node)
		w.drop(w.nodes[f.Node])
	case Freeze:
		w.nodes[f.Node].frozen++
	case Forget:
		w.nodes[f.Node].model.Flush()
	case Evict:
		n := w.nodes[f.Node]
		n.model.Forget(n.time(w.now), f.Key)
	case Step:
		w.nodes[f.Node].wall += scriptmodel.Time(f.By / time.Microsecond)
	case Pause:
		w.clients[f.Client].paused++
	case Sleep:
		w.clients[f.Client].paused++
	case ForgetScripts:
		w.nodes[f.Node].forgetScripts()
	case StepWall:
		w.clients[f.Client].wall += scriptmodel.Time(f.By / time.Microsecond)
	default:
		w.between(f, 1)
	}
}

func (w *World) end(f Fault) {
	switch f.Kind {
	case Crash, CrashLoss, Failover:
		n := w.nodes[f.Node]
		n.down--
		if f.Kind == CrashLoss {
			n.model.Flush()
		}
		if f.Kind == Failover {
			n.model.Promote(n.history())
		} else {
			n.model.Restart(n.history(), n.history())
		}
	case Freeze:
		n := w.nodes[f.Node]
		if n.frozen--; n.frozen == 0 {
			w.thaw(n)
			w.connect(f.Node)
		}
	case Pause:
		w.clients[f.Client].resume(w)
	case Sleep:
		c := w.clients[f.Client]
		c.clock.slept += time.Duration(float64(f.For) * c.clock.rate)
		c.resume(w)
	case Cut, CutThere, CutBack, Stall:
		w.between(f, -1)
	}
}

// maxBacklog is the longest time from a thaw to the end of the backlog. The node reads its
// connections in turn, closed ones included: some may be far behind others, and behind new ones.
const maxBacklog = 300 * time.Millisecond

// thaw makes a node run its backlog. Only the calls of one connection stay in order.
func (w *World) thaw(n *node) {
	if w.random.IntN(2) == 0 {
		for _, e := range n.held {
			if e.on.read < w.now {
				e.on.read = w.now + time.Duration(w.random.Int64N(int64(maxBacklog)))
			}
		}
	}
	w.again(&n.held)
}

// between counts a fault at each link that it concerns.
func (w *World) between(f Fault, one int) {
	for c := range w.clients {
		for n := range w.nodes {
			if f.Client >= 0 && f.Client != c || f.Node >= 0 && f.Node != n {
				continue
			}
			for lane := range Lanes {
				w.link(c, n, lane).suffer(w, f.Kind, one)
			}
		}
	}
}

func (l *link) suffer(w *World, kind FaultKind, one int) {
	switch kind {
	case Cut:
		l.cutThere += one
		l.cutBack += one
	case CutThere:
		l.cutThere += one
	case CutBack:
		l.cutBack += one
	case Stall:
		if l.stalled += one; l.stalled == 0 {
			w.again(&l.held)
		}
	}
}

func (c *client) resume(w *World) {
	if c.paused--; c.paused == 0 {
		w.again(&c.held)
	}
}

// again puts delayed events back into the queue, for now and in their order.
func (w *World) again(held *[]*event) {
	for _, e := range *held {
		w.last++
		e.at, e.number = w.now, w.last
		w.push(e)
	}
	*held = (*held)[:0]
}

// drop forgets the events that a node has not run yet.
func (w *World) drop(n *node) {
	for _, e := range n.held {
		w.free(e)
	}
	n.held = n.held[:0]
}
