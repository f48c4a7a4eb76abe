package simulation

import (
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// span is a hold, or a TryLock, from its beginning to its end.
type span struct {
	names    []string
	read     int // which of them are read
	from, to time.Duration
	who      string
}

// called notes that a call begins. Its ticket must be the time of the call.
func (t *watch) called(p *process) {
	t.world.mu.Lock()
	defer t.world.mu.Unlock()
	p.called = append(p.called, time.Now())
}

// ticketed checks that a waiter's ticket is the time of a call, or a little later if several came
// at one instant. It is the time by the client's own clock. If that is wrong, it is the time by the
// clocks of the nodes, to within seconds: a NodeTimeout may have passed since their replies, and
// clocks drift apart.
func (t *watch) ticketed(m message) {
	if m.script != "acquire" || m.place.waiter == "" || m.place.unsure {
		return // an unsure ticket is for the node to judge
	}
	const atOnce = 64 * time.Microsecond
	apart := t.world.plan.Drift.Rate * float64(min(t.world.now(), wire.FreshClock))
	seconds := 3*time.Second + t.world.plan.NodeTimeout + time.Duration(apart)
	first, last := t.world.clocks()
	right := m.path.proc.wasRight && m.path.proc.right()
	for _, at := range m.path.proc.called {
		off := time.UnixMicro(int64(m.place.ticket)).Sub(at)
		own := off - m.path.proc.ahead
		exact := own > -2*time.Microsecond && own < atOnce && m.path.proc.ahead >= first-seconds && m.path.proc.ahead <= last+seconds
		if exact || !right && off >= first-seconds && off <= last+seconds {
			return
		}
	}
	if t.world.plan.keepsTime() {
		t.world.violateLocked(ticketOrder, "%v has the ticket %.0f, and nobody called then", m.waiter, m.place.ticket)
	}
}

// inCallOrder checks the order of grants while nothing fails. When a call gets the lock, no earlier
// call of the same process for the same lock may still wait. Readers are exempt, since they share
// the lock. So is a call that has its slot of a semaphore, and may have to agree on the slot's
// token. Calls that find several free slots within a round trip may be served in any order: a call
// that finds its script missing is sent again. That includes MultiLocks of a semaphore and readers.
func (t *watch) inCallOrder(c *call) {
	names := strings.Split(c.name, "+")
	names = slices.DeleteFunc(names, func(name string) bool { return Step{Read: c.read}.reads(name) })
	if t.world.plan.Class != calm || len(names) == 0 {
		return
	}
	several := len(names) == 1 && names[0] == semaphore && t.world.plan.Permits > 1
	for _, o := range t.calls { // in the order in which they began
		if o == c || several && c.began.Sub(o.began) < 4*t.world.plan.Latency {
			return
		}
		if o.proc == c.proc && o.name == c.name && o.read == c.read && !t.agrees(c.proc, names[0]) {
			t.world.violateLocked(callOrder, "%v: the call for %s of %v was granted past that of %v", c.proc, c.name, c.began.Sub(t.world.began), o.began.Sub(t.world.began))
		}
	}
}

// agrees reports whether a quorum has given a slot of the semaphore to a pending call of the
// process.
func (t *watch) agrees(p *process, name string) bool {
	for _, a := range t.owners {
		slots := 0
		for at, promise := range a.since {
			if strings.HasPrefix(at.name, name+"#") && promise.at.Add(promise.ttl).After(time.Now()) {
				slots++
			}
		}
		if a.proc == p && !a.granted && slots >= t.world.plan.Quorum {
			return true
		}
	}
	return false
}

// clocks returns the least and the most by which a node's clock is ahead of the true time.
func (w *world) clocks() (least, most time.Duration) {
	for i, n := range w.nodes {
		ahead := time.Until(n.clock.now())
		if i == 0 || ahead < least {
			least = ahead
		}
		if i == 0 || ahead > most {
			most = ahead
		}
	}
	return least, most
}

// right reports whether the clock of a process is near those of all nodes. It is called with the
// world's mutex held, as clocks is.
func (p *process) right() bool {
	const near = wire.SameClock * 9 / 10
	first, last := p.world.clocks()
	return p.ahead > last-near && p.ahead < first+near
}

// keepsTime reports whether no node's clock is stepped, or runs much faster or slower than the
// others.
func (p *Plan) keepsTime() bool {
	return p.Class != beyond && !slices.ContainsFunc(p.Faults, func(f Fault) bool { return f.Kind == stepBack || f.Kind == stepForward })
}

// refused records that a TryLock was refused because the lock is held.
func (t *watch) refused(k *worker, s Step, began time.Duration) {
	t.world.mu.Lock()
	defer t.world.mu.Unlock()
	t.refuse = append(t.refuse, span{strings.Split(s.Name, "+"), s.Read, began, t.world.now(), k.proc.id})
}

// tried checks each refused TryLock: another caller had the lock, or got it soon after. While
// nothing fails, one of the contenders wins. Callers that share the lock refuse another one only
// for a waiter that wants it alone.
func (t *watch) tried() {
	t.world.mu.Lock()
	defer t.world.mu.Unlock()
	// A MultiLock that waits for one lock is the first in the queue of the other.
	if t.world.plan.Class != calm || t.multi || len(t.world.plan.Java) > 0 {
		return
	}
	for _, w := range t.world.plan.Workers {
		for _, step := range w.Steps {
			if step.Cancel > 0 || step.Told > 0 {
				return // the holder at the nodes may abandon it
			}
		}
	}
	soon := 20*time.Millisecond + 40*t.world.plan.Latency
	for _, r := range t.refuse {
		if slices.Contains(r.names, semaphore) {
			t.triedSlot(r, soon)
			continue
		}
		had, others := false, slices.Concat(t.past, t.waited)
		if r.read != 0 { // one who tries to have it alone waits, too, for a moment
			others = append(others, t.refuse...)
		}
		for _, h := range others {
			if h.read != 0 && r.read != 0 {
				continue
			}
			for _, name := range h.names {
				for _, tried := range r.names {
					had = had || name == tried && h.from < r.to+soon && h.to > r.from-soon
				}
			}
		}
		if !had {
			t.world.violateLocked(oneWins, "%s tried %v from %v to %v and was refused, and nobody had it", r.who, r.names, r.from, r.to)
		}
	}
}
