package slotsim

import (
	"testing"
	"time"
)

// The members of the locks below.
var (
	mutexA, readerA, mutexB = member{name: "a"}, member{name: "a", shared: true}, member{name: "b"}
	slotS                   = member{name: "s", permits: 2}
)

// crowd is a number of callers of one kind.
type crowd struct {
	callers int
	gives   time.Duration // after which they give up at most; 0 for never
	members []member
}

// compete lets crowds take their locks again and again, for a while. It returns the grants of each
// crowd, and the number of scripts. Each script keeps its node busy for each.
func compete(t *testing.T, seed uint64, m minority, each, while time.Duration, crowds ...crowd) (grants []int, scripts int) {
	s := newCalm(seed, &calm{near: 50 * time.Microsecond, far: 350 * time.Microsecond, hold: ms, each: each, minority: m})
	var all [][]*worker
	for _, c := range crowds {
		var some []*worker
		for range c.callers {
			w := &worker{sim: s, number: len(some) + 100*len(all), members: c.members, gives: c.gives, left: 1 << 30}
			s.after(s.between(0, ms), w.next)
			some = append(some, w)
		}
		all = append(all, some)
	}
	for len(s.events) > 0 && s.events[0].at < while && s.bad == "" {
		s.play()
	}
	if s.bad != "" {
		t.Fatal(s.bad)
	}
	for _, some := range all {
		n := 0
		for _, w := range some {
			n += w.grants
		}
		grants = append(grants, n)
	}
	return grants, s.scripts
}

// kinds are MultiLocks, the first of which has mutexes only.
var kinds = [][]member{{mutexA, mutexB}, {readerA, mutexB}, {slotS, mutexB}, {readerA, slotS, mutexB}}

// A MultiLock takes a share, or a slot, at its turn at all its members. So a grant costs little
// more than with a mutex in its place, for any number of callers.
func TestAShareOrASlotOfAMultiLockIsTakenInItsTurn(t *testing.T) {
	for _, m := range []minority{{}, {silent: 1}, {silent: 2}} {
		each := func(callers int, kind []member) float64 {
			grants, scripts := compete(t, 1, m, 0, time.Second/2, crowd{callers, 0, kind})
			return float64(scripts) / float64(max(grants[0], 1)*len(kind)*(5-m.silent))
		}
		for _, callers := range []int{4, 40} {
			mutexes := each(callers, kinds[0])
			for _, kind := range kinds {
				if got := each(callers, kind); got > 2.5*mutexes {
					t.Errorf("%d callers of %v, %+v: %.2f scripts a grant and cell, %.2f with mutexes", callers, kind, m, got, mutexes)
				}
			}
		}
	}
}

// Callers that give up cost the others little: at least half of the grants remain, also of callers
// that wait for one of the members alone. With shares and slots they cost the nodes little more
// than with mutexes. The same holds for scripts so slow that the calls of all that give up would
// keep the nodes busy all the time.
func TestCallersWhoGiveUpCostTheOthersLittle(t *testing.T) {
	for _, each := range []time.Duration{0, 200 * time.Microsecond, 400 * time.Microsecond} {
		var mutexes float64
		for i, kind := range kinds {
			// 38 %: see docs/design/attempts.md, Busy nodes.
			if len(kind) > 2 && each > 200*time.Microsecond {
				continue
			}
			beside := crowd{4, 0, []member{mutexB}}
			alone, _ := compete(t, 1, minority{}, each, time.Second, crowd{24, 0, kind})
			churnAlone, _ := compete(t, 1, minority{}, each, time.Second, crowd{24, 50 * ms, kind})
			patient, _ := compete(t, 1, minority{}, each, time.Second, beside, crowd{24, 0, kind})
			churn, scripts := compete(t, 1, minority{}, each, time.Second, beside, crowd{24, 50 * ms, kind})
			t.Logf("scripts of %v, %v: grants %v, without giving up %v; with others beside %v, without giving up %v; %d scripts",
				each, kind, churnAlone, alone, churn, patient, scripts)
			if churnAlone[0] < alone[0]/2 || churn[0] < patient[0]/2 || churn[0]+churn[1] < (patient[0]+patient[1])/2 {
				t.Errorf("scripts of %v, %v: %v and %v grants, %v and %v if nobody gives up", each, kind, churnAlone, churn, alone, patient)
			}
			costs := float64(scripts) / float64((churn[0]+churn[1])*len(kind))
			if i == 0 {
				mutexes = costs
			}
			if costs > 2.5*mutexes {
				t.Errorf("scripts of %v, %v: %.1f scripts a grant and member, %.1f with mutexes", each, kind, costs, mutexes)
			}
		}
	}
}
