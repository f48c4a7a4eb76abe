package scripts_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// crowd is a server whose clock the test moves, with ears for the wake channels of "alice" and "bob".
type crowd struct {
	*server
	now time.Time

	mu    sync.Mutex
	heard []string
	came  chan struct{}
}

func gather(t *testing.T) *crowd {
	t.Helper()
	c := &crowd{server: start(t), now: epoch, came: make(chan struct{}, 100)}
	c.data.SetTime(c.now)
	for _, client := range []string{"alice", "bob", "carol"} {
		confirmed := make(chan struct{})
		var once sync.Once
		t.Cleanup(transport.Of(c.node).Listen(wire.WakeChannel(client), func(message string) {
			once.Do(func() { close(confirmed) })
			if message != "" {
				c.mu.Lock()
				c.heard = append(c.heard, message)
				c.mu.Unlock()
				c.came <- struct{}{}
			}
		}))
		<-confirmed
	}
	return c
}

func (c *crowd) wait(d time.Duration) {
	c.now = c.now.Add(d)
	c.data.SetTime(c.now)
	c.data.FastForward(d)
}

// checkHeard checks the messages since the last check, in their order. A marker is sent after them, so that it sees
// messages that must not come.
func (c *crowd) checkHeard(want ...string) {
	c.Helper()
	c.data.Publish(wire.WakeChannel("alice"), "marker")
	c.data.Publish(wire.WakeChannel("bob"), "marker")
	for markers := 0; markers < 2; {
		<-c.came
		c.mu.Lock()
		markers = 0
		for _, m := range c.heard {
			if m == "marker" {
				markers++
			}
		}
		c.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var got []string
	for _, m := range c.heard {
		if m != "marker" {
			got = append(got, m)
		}
	}
	c.heard = nil
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		c.Errorf("told %q, want %q", got, want)
	}
}

const life = 2 * time.Second

// stand is an attempt of a waiter, under an owner that is used once.
func (c *crowd) stand(waiter quorumlock.Owner, ticket int64) wire.Answer {
	c.Helper()
	return c.queue(wire.Entry{Waiter: waiter, Ticket: ticket, TTL: life})
}

// queue is stand with any entry.
func (c *crowd) queue(e wire.Entry) wire.Answer {
	c.Helper()
	a, err := c.send(wire.AcquireInTurn("x", "hold:"+e.Waiter, ttl, 1, e)).Acquired()
	if err != nil {
		c.Fatal(err)
	}
	return a
}

func (c *crowd) yield(waiter quorumlock.Owner, ticket int64) bool {
	c.Helper()
	open, _, err := c.send(wire.Yield("x", "hold:"+waiter, wire.Entry{Waiter: waiter, Ticket: ticket, TTL: life})).Yielded()
	if err != nil {
		c.Fatal(err)
	}
	return open
}

func (c *crowd) checkQueue(want ...string) {
	c.Helper()
	state, err := c.send(wire.Inspect("x", 100)).Inspected()
	if err != nil {
		c.Fatal(err)
	}
	var got []string
	for _, w := range state.Queue {
		got = append(got, string(w.Owner))
	}
	if strings.Join(got, " ") != strings.Join(want, " ") || state.Waiting != len(want) {
		c.Errorf("%d in the queue: %q, want %q", state.Waiting, got, want)
	}
	if len(want) == 0 {
		for _, key := range []string{wire.QueueKey("x"), wire.EntriesKey("x")} {
			if c.data.Exists(key) {
				c.Errorf("%s is still there", key)
			}
		}
	}
}

func TestWaitersAreQueuedInTheOrderOfTheirTickets(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	for _, tt := range []struct {
		waiter   quorumlock.Owner
		ticket   int64
		position int
	}{{"bob:1", 200, 0}, {"alice:1", 300, 1}, {"carol:1", 100, 0}, {"bob:2", 300, 3}, {"alice:1", 300, 2}} {
		if a := c.stand(tt.waiter, tt.ticket); a != (wire.Answer{Holder: "holder:1", TTL: ttl, Position: tt.position}) {
			t.Errorf("%s with ticket %d: %+v, want position %d", tt.waiter, tt.ticket, a, tt.position)
		}
	}
	c.checkQueue("carol:1", "bob:1", "alice:1", "bob:2")
	c.checkHeard()
}

func TestAFreeLockIsGrantedToTheFirstInTheQueueOnly(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	c.stand("bob:1", 200)
	c.stand("alice:1", 300)
	c.release("x", "holder:1", 1)
	c.checkHeard("turn bob:1 x")
	if a := c.stand("alice:1", 300); a.Granted || !a.Free || a.Holder != "bob:1" || a.Position != 1 {
		t.Errorf("the second in the queue: %+v", a)
	}
	if a := c.acquire("x", "try:1", 1, 1); a.Granted || !a.Free || a.Holder != "bob:1" || a.Position != -1 {
		t.Errorf("one without a ticket: %+v, want a refusal that says who is the first", a)
	}
	if a := c.stand("bob:1", 200); !a.Granted {
		t.Errorf("the first in the queue: %+v", a)
	}
	c.checkQueue("alice:1")
}

// Joining comes before looking.
func TestALowerTicketThatComesToAFreeLockIsTheFirst(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	c.stand("bob:1", 200)
	c.release("x", "holder:1", 1)
	if a := c.stand("alice:1", 100); !a.Granted {
		t.Errorf("answer %+v", a)
	}
	c.checkQueue("bob:1")
}

func TestAnUncontendedAcquireLeavesNoQueue(t *testing.T) {
	c := gather(t)
	if a := c.stand("bob:1", 200); !a.Granted {
		t.Errorf("answer %+v", a)
	}
	c.checkQueue()
}

func TestTheFirstThatIsToldItsTurnHasASecond(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	c.stand("bob:1", 200)
	c.stand("alice:1", 300)
	c.release("x", "holder:1", 1)
	c.checkHeard("turn bob:1 x")
	c.wait(999 * time.Millisecond)
	if a := c.stand("alice:1", 300); a.Granted {
		t.Error("served before the turn of the first was over")
	}
	c.wait(time.Millisecond)
	if a := c.stand("alice:1", 300); !a.Granted {
		t.Errorf("the turn of the first is over: %+v", a)
	}
	c.checkQueue()
}

// Otherwise a dead one would stay for as long as others come and go.
func TestTheFirstThatIsToldItsTurnAgainHasNoMoreTime(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	c.stand("bob:1", 200)
	c.stand("alice:1", 300)
	c.release("x", "holder:1", 1)
	for range 3 {
		c.wait(250 * time.Millisecond)
		c.release("x", "nobody:1", 1)
	}
	c.checkHeard("turn bob:1 x", "turn bob:1 x", "turn bob:1 x", "turn bob:1 x")
	c.wait(250 * time.Millisecond)
	if a := c.stand("alice:1", 300); !a.Granted {
		t.Errorf("the turn of the first is over: %+v", a)
	}
}

func TestADeadFirstIsDroppedAndTheNextIsCalled(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	c.stand("bob:1", 100)
	c.wait(1500 * time.Millisecond)
	c.stand("alice:1", 200)
	c.stand("carol:1", 300)
	c.data.Del("x") // it expires: nobody is called
	c.wait(500 * time.Millisecond)
	if a := c.stand("carol:1", 300); a.Granted || !a.Free || a.Holder != "alice:1" || a.Position != 1 {
		t.Errorf("answer %+v, want the second position", a)
	}
	c.checkQueue("alice:1", "carol:1")
	c.checkHeard("turn alice:1 x")
	c.wait(time.Second)
	c.release("x", "nobody:1", 1) // whatever runs: the turn of alice is over, too
	c.checkHeard("turn carol:1 x")
}

func TestARefreshKeepsAPosition(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	for range 5 {
		c.stand("bob:1", 100)
		c.wait(life - time.Millisecond)
	}
	c.stand("alice:1", 200)
	c.checkQueue("bob:1", "alice:1")
	c.wait(life) // and a queue that nobody comes to any more goes away by itself
	for _, key := range []string{wire.QueueKey("x"), wire.EntriesKey("x")} {
		if c.data.Exists(key) {
			t.Errorf("%s is still there", key)
		}
	}
}

// A client that knows the clocks of too few nodes sends unsure tickets. A node takes one that is near its own clock.
// Any other overtakes nobody who waits, and is not overtaken by those who come later.
func TestAnUnsureTicketCountsIfItIsNearTheClock(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ahead time.Duration
		want  []string
	}{
		{"right", 0, []string{"bob:1", "alice:1", "carol:1", "dave:1"}},
		{"a second ahead", time.Second, []string{"bob:1", "carol:1", "dave:1", "alice:1"}},
		{"a second behind", -time.Second, []string{"alice:1", "bob:1", "carol:1", "dave:1"}},
		{"more than a second ahead", time.Second + time.Microsecond, []string{"bob:1", "alice:1", "carol:1", "dave:1"}},
		{"more than a second behind", -time.Second - time.Microsecond, []string{"bob:1", "alice:1", "carol:1", "dave:1"}},
		{"years ahead", 20 * 365 * 24 * time.Hour, []string{"bob:1", "alice:1", "carol:1", "dave:1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := gather(t)
			c.grant("x", "holder:1", 1, 1)
			now := c.now.Truncate(time.Millisecond)
			c.stand("bob:1", now.Add(-time.Second/2).UnixMicro())
			c.queue(wire.Entry{Waiter: "alice:1", Ticket: now.Add(tt.ahead).UnixMicro(), Unsure: true, TTL: life})
			c.stand("carol:1", now.Add(time.Second/4).UnixMicro())
			c.stand("dave:1", now.Add(time.Second/2).UnixMicro())
			c.checkQueue(tt.want...)
		})
	}
}

func TestTheFirstWithAnUnsureTicketHasTheTimeOfTheNode(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	c.queue(wire.Entry{Waiter: "alice:1", Ticket: c.now.Add(time.Hour).UnixMicro(), Unsure: true, TTL: life})
	c.stand("bob:1", c.now.Add(time.Millisecond).UnixMicro())
	c.checkQueue("alice:1", "bob:1")
}

// A sure ticket counts as it is, even if it is years away: the caller may have waited elsewhere. An unsure one that comes
// late, from before the client knew better, changes nothing.
func TestALateUnsureTicketMovesNobody(t *testing.T) {
	for name, late := range map[string]func(c *crowd, e wire.Entry){
		"refresh": func(c *crowd, e wire.Entry) { c.queue(e) },
		"yield":   func(c *crowd, e wire.Entry) { c.send(wire.Yield("x", "hold:alice:1", e)) },
	} {
		t.Run(name, func(t *testing.T) {
			c := gather(t)
			c.grant("x", "holder:1", 1, 1)
			e := wire.Entry{Waiter: "alice:1", Ticket: 300, Unsure: true, TTL: life}
			c.queue(e)
			c.stand("bob:1", 200)
			c.checkQueue("bob:1", "alice:1")
			c.stand("alice:1", 100)
			c.checkQueue("alice:1", "bob:1")
			late(c, e)
			c.checkQueue("alice:1", "bob:1")
			c.stand("alice:1", 250)
			c.checkQueue("bob:1", "alice:1")
		})
	}
}

// The client sets its clock right by what a node says when it refuses a waiter.
func TestARefusalTellsAWaiterTheClock(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	e := wire.Entry{Waiter: "alice:1", Ticket: 100, TTL: life}
	for name, call := range map[string]wire.Call{
		"of a lock":      wire.AcquireInTurn("x", "hold:alice:1", ttl, 1, e),
		"of a reader":    wire.AcquireInTurn("x", "hold:alice:1", ttl, 1, e).Shared(),
		"of a semaphore": wire.AcquireInTurn("s", "hold:alice:1", ttl, 1, e).OfSemaphore(1, 0),
	} {
		if name == "of a semaphore" {
			c.send(wire.AcquireInTurn("s", "holder:2", ttl, 1, wire.Entry{Waiter: "bob:1", TTL: life}).OfSemaphore(1, 0))
		}
		reply := c.send(call)
		if now, ok := reply.Clock(); !ok || now.UnixMilli() != c.now.UnixMilli() {
			t.Errorf("%s: %v, %v in %v, want %v", name, now, ok, reply.Value, c.now)
		}
	}
	if _, ok := c.send(wire.Acquire("x", "hold:carol:1", ttl, 1, 1)).Clock(); ok {
		t.Error("one who does not wait is told the clock")
	}
}

func TestAYieldRejoinsWithItsTicketAndWakesTheFirst(t *testing.T) {
	c := gather(t)
	c.stand("bob:1", 200) // granted
	c.stand("alice:1", 100)
	if open := c.yield("bob:1", 200); open {
		t.Error("open, though somebody with a lower ticket waits")
	}
	c.checkHold("x", "", "")
	c.checkQueue("alice:1", "bob:1")
	c.checkHeard("turn alice:1 x")
}

// Otherwise a contender that won a minority would come back at once, for the same outcome.
func TestAYieldDoesNotWakeItsOwnYielder(t *testing.T) {
	c := gather(t)
	c.stand("bob:1", 100) // granted
	c.stand("alice:1", 200)
	if open := c.yield("bob:1", 100); !open {
		t.Error("not open to the first in the queue of a free lock")
	}
	c.checkQueue("bob:1", "alice:1")
	c.checkHeard()
}

func TestAYieldOfWhatSomebodyElseHoldsOnlyJoins(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	if open := c.yield("bob:1", 100); open {
		t.Error("open, though it is held")
	}
	c.checkHold("x", "holder:1", "1")
	c.checkQueue("bob:1")
	c.checkHeard()
}

func TestLeaveTakesOutAndPassesTheTurnOn(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	c.stand("bob:1", 100)
	c.stand("alice:1", 200)
	if !c.done(wire.Leave("x", "alice:1", false)) || c.done(wire.Leave("x", "alice:1", false)) {
		t.Error("Leave does not tell whether the waiter was queued")
	}
	c.checkHeard() // it is held
	c.stand("alice:1", 200)
	c.release("x", "holder:1", 1)
	c.checkHeard("turn bob:1 x")
	c.done(wire.Leave("x", "bob:1", false))
	c.checkHeard("turn alice:1 x")
	c.done(wire.Leave("x", "alice:1", false))
	c.checkHeard()
	c.checkQueue()
}

func TestAReleaseTakesTheWaiterOfItsOwnerOutOfTheQueue(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	c.stand("bob:1", 100) // a lost answer left it there
	c.stand("alice:1", 200)
	if _, held, err := c.send(wire.ReleaseAndLeave("x", "holder:1", "bob:1", false)).Released(); !held || err != nil {
		t.Errorf("held %v, %v", held, err)
	}
	c.checkQueue("alice:1")
	c.checkHeard("turn alice:1 x")
}

func TestAHolderGetsALostKeyBackPastTheQueue(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	c.stand("bob:1", 100)
	c.data.Del("x")
	if a, err := c.send(wire.Restore("x", "holder:1", ttl, 7)).Acquired(); err != nil || !a.Granted || a.Token != 7 {
		t.Errorf("answer %+v, %v", a, err)
	}
	if a, err := c.send(wire.Restore("x", "other:1", ttl, 7)).Acquired(); err != nil || a.Granted {
		t.Errorf("while somebody holds: %+v, %v", a, err)
	}
	c.checkQueue("bob:1")
}

func TestForceReleaseWakesTheFirstInTheQueue(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	c.stand("bob:1", 100)
	c.done(wire.ForceRelease("x"))
	c.checkHeard("turn bob:1 x")
}

// A waiter far back refreshes seldom: it must look more often once a first one that never
// comes would keep it waiting.
func TestTheSecondIsToldThatItIsNextIfItRefreshesSeldom(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	c.stand("bob:1", 100)
	e := wire.Entry{Waiter: "alice:1", Ticket: 200, TTL: time.Minute}
	if r := c.send(wire.AcquireInTurn("x", "hold:a", ttl, 1, e)); r.Err != nil {
		t.Fatal(r.Err)
	}
	c.release("x", "holder:1", 1)
	c.checkHeardInAnyOrder("turn bob:1 x", "next alice:1 x")
}

func (c *crowd) checkHeardInAnyOrder(a, b string) {
	c.Helper()
	for range 2 {
		<-c.came
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := strings.Join(c.heard, "; "); got != a+"; "+b && got != b+"; "+a {
		c.Errorf("told %q, want %q and %q", got, a, b)
	}
}

func TestALongRowOfDeadWaitersIsDroppedInSteps(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	for i := range 150 {
		c.stand(quorumlock.Owner("dead:"+strings.Repeat("i", i+1)), int64(i+1))
	}
	c.wait(time.Second)
	c.stand("bob:1", 1000)
	c.wait(time.Second)
	c.data.Del("x")
	for range 2 {
		if c.acquire("x", "try:1", 1, 1).Granted {
			t.Fatal("one without a ticket went past a living waiter")
		}
	}
	c.checkQueue("bob:1")
	if a := c.stand("bob:1", 1000); !a.Granted {
		t.Errorf("answer %+v", a)
	}
}

// Those who hold the lock long keep the dead from gathering before the living: an entry far back is one
// that is refreshed seldom.
func TestARefreshDropsTheDeadBeforeItWhileTheLockIsHeld(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	for i := range 20 {
		c.stand(quorumlock.Owner("dead:"+strings.Repeat("i", i+1)), int64(i+1))
	}
	c.wait(time.Second)
	if a := c.stand("bob:1", 1000); a.Position != 20 {
		t.Errorf("answer %+v, want the position behind those who may be alive", a)
	}
	c.wait(time.Second)
	if a := c.stand("bob:1", 1000); a.Granted || a.Position != 0 {
		t.Errorf("answer %+v, want the first position", a)
	}
	c.checkQueue("bob:1")
	c.checkHeard() // it is held
}

// One of the queue's two keys may be evicted without the other.
func TestEitherKeyOfTheQueueEvictedLeavesNoneWithoutAnExpiry(t *testing.T) {
	for _, key := range []string{wire.QueueKey("x"), wire.EntriesKey("x")} {
		for _, longer := range []time.Duration{0, time.Minute} {
			c := gather(t)
			c.grant("x", "holder:1", 1, 1)
			e := wire.Entry{Waiter: "alice:1", Ticket: 200, TTL: life + longer}
			if r := c.send(wire.AcquireInTurn("x", "hold:a", ttl, 1, e)); r.Err != nil {
				t.Fatal(r.Err)
			}
			c.data.Del(key)
			c.stand("bob:1", 300)
			for _, key := range []string{wire.QueueKey("x"), wire.EntriesKey("x")} {
				if c.data.TTL(key) == 0 {
					t.Errorf("%s never expires", key)
				}
			}
		}
	}
}
