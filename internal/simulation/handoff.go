package simulation

import (
	"slices"
	"time"
)

// call is a call of Lock that waits.
type call struct {
	name  string
	began time.Time
	ends  time.Time // if it gets nothing
}

// waits is told that a call of Lock begins. It returns what ends that.
func (t *watch) waits(name string, limit time.Duration) (done func()) {
	c := &call{name, time.Now(), time.Now().Add(limit)}
	t.world.mu.Lock()
	defer t.world.mu.Unlock()
	t.calls = append(t.calls, c)
	return func() {
		t.world.mu.Lock()
		defer t.world.mu.Unlock()
		t.calls = slices.DeleteFunc(t.calls, func(o *call) bool { return o == c })
		t.handoff(name)
	}
}

// handoff is called, with the world's mutex held, when a lock may have become free. Where nothing fails, one of those
// who wait has it soon: long before anybody would look for himself.
func (t *watch) handoff(name string) {
	l := t.world.plan.Latency
	soon := 20*time.Millisecond + 40*l
	if t.world.plan.Class != calm || t.multi || !t.free(name) {
		return
	}
	before, now := t.names[name].count, time.Now()
	t.world.post.send(soon, t.world.dice.of("handoff", now.String()), func() {
		if t.names[name].count > before || !t.free(name) {
			return
		}
		for _, c := range t.calls {
			if c.name == name && now.Sub(c.began) > 10*l && c.ends.After(time.Now()) {
				t.world.violateLocked(promptly, "%s was free for %v, while somebody waits since %v", name, soon, c.began.Sub(t.world.began))
				return
			}
		}
	})
}

func (t *watch) free(name string) bool {
	return !slices.ContainsFunc(t.holds, func(h *hold) bool { return slices.Contains(h.names, name) })
}
