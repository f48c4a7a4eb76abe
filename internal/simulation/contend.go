package simulation

import (
	"slices"
	"strings"
	"time"
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
	p.called = append(p.called, p.now().UnixMicro())
}

// ticketed checks that a waiter's ticket is the time of a call, or a little later if several came at one instant.
func (t *watch) ticketed(m message) {
	if m.script != "acquire" || m.place.waiter == "" {
		return
	}
	const atOnce = 64
	for _, at := range m.path.proc.called {
		if late := int64(m.place.ticket) - at; late >= 0 && late < atOnce {
			return
		}
	}
	if !m.path.proc.stepped {
		t.world.violateLocked(ticketOrder, "%v has the ticket %.0f, and nobody called then", m.waiter, m.place.ticket)
	}
}

// inCallOrder checks the order of grants while nothing fails. When a call gets the lock, no earlier
// call of the same process for the same lock may still wait. Readers are exempt, since they share
// the lock.
func (t *watch) inCallOrder(c *call) {
	alone := slices.ContainsFunc(strings.Split(c.name, "+"), func(name string) bool { return !Step{Read: c.read}.reads(name) })
	if t.world.plan.Class != calm || !alone {
		return
	}
	for _, o := range t.calls { // in the order in which they began
		if o == c {
			return
		}
		if o.proc == c.proc && o.name == c.name && o.read == c.read {
			t.world.violateLocked(callOrder, "%v: the call for %s of %v was granted past that of %v", c.proc, c.name, c.began.Sub(t.world.began), o.began.Sub(t.world.began))
		}
	}
}

// refused notes that a TryLock was refused because somebody has the lock.
func (t *watch) refused(k *worker, s Step, began time.Duration) {
	t.world.mu.Lock()
	defer t.world.mu.Unlock()
	t.refuse = append(t.refuse, span{strings.Split(s.Name, "+"), s.Read, began, t.world.now(), k.proc.id})
}

// tried checks that somebody had the lock, or got it soon after, whenever a TryLock was refused: while nothing fails,
// one of the contenders wins. Those who share the lock refuse nobody else who shares it, but for one who waits to have it alone.
func (t *watch) tried() {
	t.world.mu.Lock()
	defer t.world.mu.Unlock()
	if t.world.plan.Class != calm || t.multi || len(t.world.plan.Java) > 0 { // a MultiLock that waits for one lock is the first in the queue of the other
		return
	}
	for _, w := range t.world.plan.Workers {
		for _, step := range w.Steps {
			if step.Cancel > 0 || step.Told > 0 {
				return // who has the lock at the nodes may give it up
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
