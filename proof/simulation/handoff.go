package simulation

import (
	"slices"
	"strings"
	"time"
)

// call is a call of Lock that waits.
type call struct {
	proc    *process
	name    string
	read    int
	ticket  int64
	began   time.Time
	ends    time.Time // if it gets nothing
	patient bool      // the limit is an hour, and nothing cancels the call
}

// waits notes the start of a call of Lock. It returns the function that notes the end; got reports
// whether the call got the lock.
func (t *watch) waits(p *process, s Step, limit time.Duration) (done func(got bool)) {
	name := s.Name
	c := &call{p, name, s.Read, int64(time.Now().Add(p.ahead).UnixMicro()), time.Now(), time.Now().Add(limit), limit == time.Hour && s.Told == 0}
	t.world.mu.Lock()
	defer t.world.mu.Unlock()
	t.calls = append(t.calls, c)
	return func(got bool) {
		t.world.mu.Lock()
		defer t.world.mu.Unlock()
		if got {
			t.inCallOrder(c)
		}
		t.ends(c, got)
		t.calls = slices.DeleteFunc(t.calls, func(o *call) bool { return o == c })
		if s.Read == 0 {
			t.waited = append(t.waited, span{names: strings.Split(name, "+"), from: c.began.Sub(t.world.began), to: t.world.now()})
		}
		t.handoff(name)
	}
}

// handoff is called, with the world's mutex held, when a lock may have become free, or shareable.
// If nothing fails, a waiter has it soon: long before its next refresh. All waiters that can share
// the lock with its holders have it soon, too, unless a waiter for exclusive use is ahead or has
// just left. In that case, handoff is called again when that one leaves.
func (t *watch) handoff(name string) {
	if name == semaphore {
		t.vacated()
		return
	}
	l := t.world.plan.Latency
	soon := 20*time.Millisecond + 40*l
	if t.world.plan.Class != calm || t.multi || len(t.world.plan.Java) > 0 || !t.free(name, true) {
		return
	}
	before, now, nobody := *t.names[name], time.Now(), t.free(name, false)
	from := t.world.now()
	t.world.post.send(soon, t.world.dice.of("handoff", now.String()), func() {
		if t.names[name].alone > before.alone || !t.free(name, true) {
			return
		}
		left := slices.ContainsFunc(t.waited, func(s span) bool { return s.to > from && slices.Contains(s.names, name) })
		free := nobody && t.free(name, false) && t.names[name].count == before.count
		for _, c := range t.calls {
			waits := c.name == name && now.Sub(c.began) > 10*l && c.ends.After(time.Now())
			if waits && (free || c.read != 0 && !left && !t.behind(c)) {
				t.world.violateLocked(promptly, "%s was free for %v, while somebody waits since %v, to read %v", name, soon, c.began.Sub(t.world.began), c.read != 0)
				return
			}
		}
	})
}

// behind reports whether a caller that wants to hold the lock alone is ahead of a call, or came at
// about the same time: within seconds, if the clock of one of them is wrong.
func (t *watch) behind(c *call) bool {
	const seconds = 3 * time.Second
	return slices.ContainsFunc(t.calls, func(o *call) bool {
		return o.name == c.name && o.read == 0 && (o.ticket < c.ticket+64 || !(o.proc.right() && c.proc.right()) && o.began.Before(c.began.Add(seconds)))
	})
}

// free reports whether nobody has the lock or, for shares, whether nobody has it alone.
func (t *watch) free(name string, shares bool) bool {
	return !slices.ContainsFunc(t.holds, func(h *hold) bool { return slices.Contains(h.names, name) && !(shares && h.reads[name]) })
}
