package simulation

import (
	"strings"
	"time"
)

// nameSet is a set of names of locks: those of Step.Read, and the semaphore.
type nameSet int

const (
	inSemaphore = readsY << 1
	allNames    = inSemaphore<<1 - 1
)

func setOf(names ...string) (s nameSet) {
	for _, name := range names {
		s |= map[string]nameSet{"x": readsX, "y": readsY, semaphore: inSemaphore}[name]
	}
	return s
}

// progress checks that callers do not keep a lock from each other. A group is the set of callers in
// a call of Lock that want a name in common, directly or through other callers. While none of a
// group waits for a holder, and one is patient, one of the group is granted its lock within the
// time of 40 messages and the pauses of a split vote: no message is lost, so no caller waits for
// its refresh. The audits sample that. A caller that waits for a holder exempts its group, because
// the clocks here are too far apart to tell who is first. Plans with Java are exempt: callers poll
// its locks.
func (t *watch) progress() {
	p := t.world.plan
	if p.Class != calm || len(p.Java) > 0 {
		return
	}
	soon := 20*time.Millisecond + 40*p.Latency
	taken, alone := t.taken()
	for all := nameSet(allNames); all != 0; {
		group := t.group(all & -all)
		all &^= group
		c := t.mayGoOn(group, taken, alone)
		if c == nil {
			t.moved(group)
			continue
		}
		from := c.began
		for name, at := range t.lastMoves {
			if group&name != 0 && at.After(from) {
				from = at
			}
		}
		if waits := time.Since(from); waits > soon {
			t.world.violateLocked(goesOn, "%v: none of the callers that contend with the call for %s of %v was granted its lock for %v", c.proc, c.name, c.began.Sub(t.world.began), waits)
		}
	}
}

// ends notes progress at the end of a call: a grant, or the end of a call that may have exempted
// its group since the last audit.
func (t *watch) ends(c *call, got bool) {
	group := t.group(c.names())
	taken, alone := t.taken()
	if got || t.mayGoOn(group, taken, alone) == nil {
		t.moved(group)
	}
}

// moved notes progress with the names: a grant, the end of a hold, or a group that is exempt.
func (t *watch) moved(s nameSet) {
	for name := nameSet(1); name <= s; name <<= 1 {
		if s&name != 0 {
			t.lastMoves[name] = time.Now()
		}
	}
}

// taken returns the names that somebody has, and those that somebody has alone. The semaphore is in
// both while all its slots are taken. A lost hold counts until its Unlock, which deletes the keys
// at the nodes.
func (t *watch) taken() (taken, alone nameSet) {
	for _, h := range t.holds {
		for _, name := range h.locks {
			if name == semaphore && t.vacant() {
				continue
			}
			taken |= setOf(name)
			if !h.reads[name] {
				alone |= setOf(name)
			}
		}
	}
	return taken, alone
}

// group returns these names and all that are connected with them: the names that a caller of one of
// them wants, the names that a caller of one of those wants, and so on.
func (t *watch) group(s nameSet) nameSet {
	for was := nameSet(0); was != s; {
		was = s
		for _, c := range t.calls {
			if c.names()&s != 0 {
				s |= c.names()
			}
		}
	}
	return s
}

// mayGoOn returns the first patient caller of a group. It returns nil if there is none, or if a
// caller of the group waits for a holder. A caller with a limited wait is not patient: it may
// pause, or have given up.
func (t *watch) mayGoOn(group, taken, alone nameSet) (patient *call) {
	for _, c := range t.calls {
		switch names := c.names(); {
		case names&group == 0:
		case names&(alone|taken&^nameSet(c.read)) != 0:
			return nil
		case c.patient && patient == nil:
			patient = c
		}
	}
	return patient
}

func (c *call) names() nameSet { return setOf(strings.Split(c.name, "+")...) }
