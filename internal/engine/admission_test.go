package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// queueing node: it runs attempts one after the other, and answers each after a round trip.
type queueingNode struct {
	service, trip time.Duration
	free          time.Duration // when it has run all attempts
	stalls, ends  time.Duration
	used          time.Duration // for how long before the test looks
}

// answers returns when the node answers an attempt that is sent now.
func (n *queueingNode) answers(now time.Duration) time.Duration {
	n.free = max(n.free, now) + n.service
	if n.free > n.stalls && n.free < n.ends {
		n.free = n.ends + n.service
	}
	return n.free + n.trip
}

// As many callers as there is room for send attempts, for ever. The node reaches its rate, and an
// attempt does not wait for long at the node. Two seconds after a stall, both hold again.
func TestALimitFollowsTheRateOfItsNode(t *testing.T) {
	for name, n := range map[string]queueingNode{
		"nearby":          {service: 50 * time.Microsecond, trip: 50 * time.Microsecond},
		"slow":            {service: 2 * time.Millisecond, trip: 50 * time.Microsecond},
		"slow for long":   {service: 2 * time.Millisecond, trip: 50 * time.Microsecond, used: 5 * time.Minute},
		"very slow":       {service: 50 * time.Millisecond, trip: time.Millisecond},
		"far":             {service: 100 * time.Microsecond, trip: 100 * time.Millisecond},
		"after a stall":   {service: 100 * time.Microsecond, trip: time.Millisecond, stalls: time.Second, ends: 9 * time.Second},
		"far and stalled": {service: 200 * time.Microsecond, trip: 50 * time.Millisecond, stalls: time.Second, ends: 4 * time.Second},
	} {
		l := &Limit{most: firstLimit}
		type flight struct{ sent, answer time.Duration }
		var all []flight // in the order of their answers
		from := max(n.ends, n.used, 8*time.Second) + 2*time.Second
		served, longest := 0, time.Duration(0)
		for now := time.Duration(0); now < from+tripFor; {
			for l.hasRoom() {
				l.flight++
				l.peak = max(l.peak, l.flight)
				all = append(all, flight{now, n.answers(now)})
			}
			first := all[0]
			all, now = all[1:], first.answer
			l.Landed(true, now-first.sent, now)
			if now >= from {
				served++
				longest = max(longest, now-first.sent)
			}
		}
		if able := tripFor / n.service; float64(served) < 0.9*float64(able) {
			t.Errorf("%s: %d attempts in 10 s, and the node can do %d; the limit is %d", name, served, able, int(l.most))
		}
		if most := 2*n.trip + max(4*queueing, 2*quiet*n.service); longest > most {
			t.Errorf("%s: an attempt takes %v, want %v at most; the limit is %d", name, longest, most, int(l.most))
		}
	}
}

// A node whose round trips differ does not hold up attempts, whatever its capacity.
func TestRoundTripsThatDifferAreNoQueue(t *testing.T) {
	for _, tt := range []struct{ least, most time.Duration }{
		{60 * time.Millisecond, 140 * time.Millisecond}, {20 * time.Millisecond, 120 * time.Millisecond}, {5 * time.Millisecond, 95 * time.Millisecond}, {250 * time.Millisecond, 251 * time.Millisecond},
	} {
		l, draw := &Limit{most: firstLimit}, rand.New(rand.NewPCG(1, 2))
		const tick = 500 * time.Microsecond
		landing := make([][]time.Duration, 1000) // by tick, when they were sent
		const seconds = 60
		var served [seconds]int
		for i := range int(seconds * time.Second / tick) {
			now := time.Duration(i) * tick
			for _, sent := range landing[i%len(landing)] {
				l.Landed(true, now-sent, now)
				served[now/time.Second]++
			}
			landing[i%len(landing)] = landing[i%len(landing)][:0]
			for range 20 { // attempts a tick, at most
				if !l.hasRoom() {
					break
				}
				l.flight++
				l.peak = max(l.peak, l.flight)
				at := (i + int((tt.least+time.Duration(draw.Int64N(int64(tt.most-tt.least))))/tick)) % len(landing)
				landing[at] = append(landing[at], now)
			}
		}
		total := 0
		for _, n := range served[10:] {
			total += n
		}
		if total /= seconds - 10; total < 8000 {
			t.Errorf("round trips of %v to %v: %d attempts a second, the last limit is %d: %v", tt.least, tt.most, total, int(l.most), served)
		}
	}
}

// However long a node has failed, one attempt at a time goes through, and the limit grows again.
func TestALimitGrowsAgainAfterFailures(t *testing.T) {
	l, now := &Limit{most: mostLimit}, time.Duration(0)
	for range 1000 {
		l.flight++
		now += time.Second
		l.Landed(false, time.Second, now)
	}
	if l.flight++; l.hasRoom() || l.most != leastLimit {
		t.Errorf("a limit of %v after failures, room beside a probe %v", l.most, l.hasRoom())
	}
	if l.flight--; !l.hasRoom() {
		t.Error("no room for a probe")
	}
	l.flight++
	l.Landed(true, time.Millisecond, now)
	for range 12 {
		for range int(l.most) {
			l.flight++
			l.peak = l.flight
		}
		now += time.Millisecond
		for l.flight > 0 {
			l.Landed(true, time.Millisecond, now)
		}
	}
	if l.most < 400 {
		t.Errorf("a limit of %v after 12 round trips", l.most)
	}
}

func TestHeldLocksComeFirst(t *testing.T) {
	l := &Limit{most: firstLimit, flight: 1}
	if l.Hold(true); l.hasRoom() {
		t.Error("attempts go on beside renewals that are behind")
	}
	if l.flight = 0; !l.hasRoom() {
		t.Error("no attempt goes beside renewals that are behind")
	}
	if l.Hold(false); !l.hasRoom() {
		t.Error("no room after the renewals")
	}
}

// majority is a lock of three nodes.
type majority []string

func (m majority) Nodes() []string { return m }
func (m majority) Need() int       { return len(m)/2 + 1 }
func (m majority) IsQuorum(some []bool) bool {
	n := 0
	for _, has := range some {
		if has {
			n++
		}
	}
	return 2*n > len(m)
}

func TestAttemptsWaitForAQuorumOfNodesWithRoom(t *testing.T) {
	lock := majority{"a", "b", "c"}
	fill := func(a *Admission[string, int], nodes ...string) {
		for _, n := range nodes {
			a.Limit(n).flight = firstLimit
		}
	}
	for _, tt := range []struct {
		full []string
		want bool
	}{{nil, true}, {[]string{"b"}, true}, {[]string{"a", "c"}, false}, {[]string{"a", "b", "c"}, false}} {
		var a Admission[string, int]
		fill(&a, tt.full...)
		if got := a.Enter(lock); got != tt.want {
			t.Errorf("%v are full: a place %v, want %v", tt.full, got, tt.want)
		}
	}

	// In the order of their calls, each when there is room.
	var a Admission[string, int]
	fill(&a, "a", "b", "c")
	var all []*Applicant[string, int]
	for i := range 5 {
		all = append(all, a.Wait(lock, i))
	}
	a.Leave(all[1])
	var got []int
	for range 3 {
		for _, n := range lock {
			a.Limit(n).Return()
		}
		if a.Enter(lock) {
			t.Error("a later attempt overtakes")
		}
		for p := a.Admit(); p != nil; p = a.Admit() {
			got = append(got, p.Caller)
		}
	}
	if want := []int{0, 2, 3}; !slices.Equal(got, want) || a.Length() != 1 {
		t.Errorf("admitted %v, and %d wait, want %v and 1", got, a.Length(), want)
	}
	for _, n := range lock {
		if flight, most := a.Limit(n).Flight(); flight != most {
			t.Errorf("%d in flight at %s, with a limit of %d", flight, n, most)
		}
	}
}

// An attempt waits behind those for the same nodes, and not behind others.
func TestAttemptsWaitInTheLineOfTheirNodes(t *testing.T) {
	var a Admission[string, string]
	near, far := majority{"a", "b", "c"}, majority{"d", "e", "f"}
	for _, n := range far {
		a.Limit(n).flight = firstLimit
	}
	blocked := a.Wait(far, "far")
	if !a.Enter(near) {
		t.Error("an attempt waits behind one for other nodes")
	}
	if a.Enter(far) {
		t.Error("an attempt overtakes one for the same nodes")
	}
	if p := a.Admit(); p != nil {
		t.Errorf("%s is admitted without room", p.Caller)
	}
	if got := a.Without(func(n string) bool { return n > "e" }); len(got) != 1 || got[0] != blocked {
		t.Errorf("%d attempts wait without a quorum, want 1", len(got))
	}
	a.Leave(blocked)
	if a.Length() != 0 || len(a.lines) != 0 {
		t.Errorf("%d attempts wait, in %d lines", a.Length(), len(a.lines))
	}
}

// An attempt that fails keeps its place for a while, and longer each time.
func TestThePauseOfFailedAttemptsGrows(t *testing.T) {
	l := &Limit{most: firstLimit, flight: 1}
	if a, b := l.Pause(), l.Pause(); a != firstPause || b != 2*firstPause {
		t.Errorf("pauses of %v and %v", a, b)
	}
	for range 10 {
		l.Pause()
	}
	if got := l.Pause(); got != lastPause {
		t.Errorf("a pause of %v", got)
	}
	l.Landed(true, time.Millisecond, time.Second)
	if got := l.Pause(); got != firstPause {
		t.Errorf("a pause of %v after an answer", got)
	}
}

// needs is a lock that needs a number of its nodes.
type needs struct {
	majority
	need int
}

func (n needs) Need() int { return n.need }
func (n needs) IsQuorum(some []bool) bool {
	has := 0
	for _, is := range some {
		if is {
			has++
		}
	}
	return has >= n.need
}

// A crowd at three nodes never ends. An attempt for these and two others has its turn.
func TestACrowdDoesNotOvertakeAnEarlierAttemptForMoreNodes(t *testing.T) {
	var a Admission[string, string]
	crowd, all := majority{"a", "b", "c"}, needs{majority{"a", "b", "c", "d", "e"}, 5}
	for a.Enter(crowd) {
	}
	a.Wait(crowd, "crowd")
	a.Wait(all, "all")
	for range 100 {
		a.Wait(crowd, "crowd")
	}
	for i := range 1000 {
		for _, n := range crowd {
			a.Limit(n).Landed(true, time.Millisecond, time.Duration(i)*time.Millisecond)
		}
		for p := a.Admit(); p != nil; p = a.Admit() {
			if p.Caller == "all" {
				return
			}
			if a.Enter(crowd) {
				t.Fatal("a newcomer overtakes")
			}
			a.Wait(crowd, "crowd")
		}
	}
	t.Error("it waits for ever")
}

// An attempt that needs all nodes waits for a silent one. Those that need a majority do not.
func TestASilentNodeDelaysOnlyAttemptsThatNeedIt(t *testing.T) {
	var a Admission[string, string]
	most, all := majority{"a", "b", "c"}, needs{majority{"a", "b", "c"}, 3}
	a.Limit("c").silent, a.Limit("c").flight = true, 1
	a.Wait(all, "all")
	if !a.Enter(most) {
		t.Error("an attempt that needs a majority waits")
	}
	if p := a.Admit(); p != nil {
		t.Errorf("%s is admitted", p.Caller)
	}
}
