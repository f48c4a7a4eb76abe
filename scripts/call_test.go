package scripts_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

const claim = time.Second // in which a waiter that is called must come

// witness hears the messages to all waiters, and sees what is stored of them.
type witness struct {
	*crowd
	told chan string
	turn map[string]int // how often a waiter was called since it came last
}

func (c *crowd) witness() *witness {
	w := &witness{c, make(chan string, 1000), make(map[string]int)}
	sub := c.data.NewSubscriber()
	sub.Psubscribe("quorumlock_wake:*")
	var pump sync.WaitGroup
	pump.Go(func() {
		for m := range sub.Pmessages() {
			w.told <- m.Message
		}
	})
	c.Cleanup(func() {
		sub.Close()
		pump.Wait()
	})
	return w
}

// since returns the messages since its last call.
func (w *witness) since() (told []string) {
	w.data.Publish("quorumlock_wake:end", "end")
	for m := range w.told {
		if m == "end" {
			return told
		}
		if m != "marker" { // of checkHeard
			told = append(told, m)
		}
	}
	return told
}

// stored returns what the node has stored of each waiter.
func (w *witness) stored() map[string]string {
	m := make(map[string]string)
	keys, _ := w.data.HKeys(wire.EntriesKey("x"))
	for _, k := range keys {
		m[k] = w.data.HGet(wire.EntriesKey("x"), k)
	}
	return m
}

// visit is an attempt of a waiter. It checks that no deadline of another waiter is cut below a claim from now, that
// nothing else of it is changed, and that it is called once for each time it comes.
func (w *witness) visit(e wire.Entry) wire.Answer {
	w.Helper()
	before := w.stored()
	delete(w.turn, string(e.Waiter))
	a := w.queue(e)
	for who, after := range w.stored() {
		was, ok := before[who]
		if who == string(e.Waiter) || !ok || was == after {
			continue
		}
		deadline, rest, _ := strings.Cut(after, " ")
		old, oldRest, _ := strings.Cut(was, " ")
		called := w.now.Add(claim).UnixMilli()
		if ms, err := strconv.ParseInt(old, 10, 64); err != nil || ms < called || deadline != fmt.Sprint(called) || rest != oldRest {
			w.Errorf("at %d the entry of %s becomes %q, and was %q", w.now.UnixMilli(), who, after, was)
		}
	}
	for _, m := range w.since() {
		f := strings.Fields(m)
		if f[0] != "turn" || f[1] == string(e.Waiter) {
			w.Errorf("%s comes, and %q is told", e.Waiter, m)
		}
		if w.turn[f[1]]++; w.turn[f[1]] > 1 {
			w.Errorf("%s is told its turn %d times", f[1], w.turn[f[1]])
		}
	}
	return a
}

// lives are how long entries are kept, of the nth in the queue.
var lives = map[string]func(n int) time.Duration{
	"that refresh often":              func(int) time.Duration { return life },
	"that refresh by position":        func(n int) time.Duration { return max(life, min(life*time.Duration(n)/16, 100*time.Second)) },
	"that refresh seldom":             func(int) time.Duration { return 100 * time.Second },
	"that refresh seldom, by turns":   func(n int) time.Duration { return life + time.Duration(n%2)*time.Minute },
	"whose deadlines are soon":        func(n int) time.Duration { return time.Duration(100+n*7%900) * time.Millisecond },
	"whose deadlines are far between": func(n int) time.Duration { return time.Duration(1+n*n) * 400 * time.Millisecond },
}

func (w *witness) dead(from, n int, life func(int) time.Duration) {
	for i := range n {
		w.queue(wire.Entry{Waiter: quorumlock.Owner(fmt.Sprintf("dead:%d", from+i)), Ticket: int64(from + i), TTL: life(i)})
	}
}

// servedAfter lets waiters come when they are called, and returns who is granted the lock first, and after how long.
func (w *witness) servedAfter(waiters ...wire.Entry) (quorumlock.Owner, time.Duration) {
	w.Helper()
	start := w.now
	due := make([]time.Time, len(waiters))
	for i := range due {
		due[i] = start
	}
	for range 100 {
		next := 0
		for i := range due {
			if due[i].Before(due[next]) {
				next = i
			}
		}
		if due[next].After(w.now) {
			w.wait(due[next].Sub(w.now))
		}
		a := w.visit(waiters[next])
		if a.Granted {
			return waiters[next].Waiter, w.now.Sub(start)
		}
		if !a.Free || a.TTL <= 0 || a.TTL > claim {
			w.Fatalf("after %v: %+v, want a free lock, and to come again within %v", w.now.Sub(start), a, claim)
		}
		due[next] = w.now.Add(a.TTL)
	}
	w.Fatal("nobody is served")
	return "", 0
}

func TestALockThatExpiredIsPassedOnWithinTwoSecondsHoweverManyAreDead(t *testing.T) {
	for _, n := range []int{1, 2, 30, 99, 100, 150, 198, 250, 300} {
		for what, life := range lives {
			t.Run(fmt.Sprint(n, " dead ", what), func(t *testing.T) {
				w := gather(t).witness()
				w.grant("x", "holder:1", 1, 1)
				w.dead(1, n, life)
				bob := wire.Entry{Waiter: "bob:1", Ticket: 1000, TTL: 2 * time.Second}
				w.queue(bob)
				w.since()
				w.data.Del("x") // it expires: nobody is called
				if who, after := w.servedAfter(bob); who != "bob:1" || after > 2*time.Second {
					t.Errorf("%s has it after %v", who, after)
				}
			})
		}
	}
}

func TestOfLivingWaitersBehindTheDeadTheFirstIsServedFirst(t *testing.T) {
	for what, life := range lives {
		t.Run(what, func(t *testing.T) {
			w := gather(t).witness()
			w.grant("x", "holder:1", 1, 1)
			w.dead(1, 30, life)
			alice := wire.Entry{Waiter: "alice:1", Ticket: 500, TTL: 2 * time.Second}
			w.queue(alice)
			w.dead(501, 30, life)
			bob := wire.Entry{Waiter: "bob:1", Ticket: 1000, TTL: 100 * time.Second}
			carol := wire.Entry{Waiter: "carol:1", Ticket: 1001, TTL: 2 * time.Second}
			w.queue(bob)
			w.queue(carol)
			w.since()
			w.data.Del("x")
			if who, after := w.servedAfter(carol, bob, alice); who != "alice:1" || after > 2*time.Second {
				t.Errorf("%s has it after %v", who, after)
			}
			w.data.Del("x")
			if who, after := w.servedAfter(carol, bob); who != "bob:1" || after > 2*time.Second {
				t.Errorf("then %s has it after %v", who, after)
			}
		})
	}
}

// The first refreshes seldom, and does not know that the lock is free. It has a second from when it is called.
func TestALivingFirstThatIsCalledIsServedFirst(t *testing.T) {
	for _, after := range []time.Duration{0, 100 * time.Millisecond, 649 * time.Millisecond, 650 * time.Millisecond, 999 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			w := gather(t).witness()
			w.grant("x", "holder:1", 1, 1)
			alice := wire.Entry{Waiter: "alice:1", Ticket: 100, TTL: 100 * time.Second}
			bob := wire.Entry{Waiter: "bob:1", Ticket: 200, TTL: life}
			w.queue(alice)
			w.queue(bob)
			w.data.Del("x")
			a := w.visit(bob)
			if want := (wire.Answer{Free: true, Holder: "alice:1", TTL: 650 * time.Millisecond, Position: 1}); a != want {
				t.Errorf("answer %+v, want %+v", a, want)
			}
			w.checkHeard("turn alice:1 x")
			for gone := time.Duration(0); gone < after; gone += 50 * time.Millisecond {
				if a := w.visit(bob); a.Granted {
					t.Fatalf("the second has it after %v", gone)
				}
				w.wait(min(50*time.Millisecond, after-gone))
			}
			w.checkHeard() // once is enough
			if a := w.visit(alice); !a.Granted {
				t.Errorf("the first: %+v", a)
			}
			w.checkQueue("bob:1")
		})
	}
}

// The first has 650 ms. Then everybody else who is before has its second, at the same time.
func TestAFirstThatDoesNotComeHasEverybodyBeforeTheAskerCalled(t *testing.T) {
	w := gather(t).witness()
	w.grant("x", "holder:1", 1, 1)
	for i, waiter := range []quorumlock.Owner{"dead:1", "alice:1", "alice:2", "bob:1", "carol:1"} {
		w.queue(wire.Entry{Waiter: waiter, Ticket: int64(i), TTL: 100 * time.Second})
	}
	w.data.Del("x")
	bob := wire.Entry{Waiter: "bob:1", Ticket: 3, TTL: 2 * time.Second}
	for _, tt := range []struct {
		wait time.Duration
		ttl  time.Duration // until it is worth coming again
		told []string
	}{
		{0, 650 * time.Millisecond, nil},
		{600 * time.Millisecond, 50 * time.Millisecond, nil},
		{49 * time.Millisecond, time.Millisecond, nil},
		{time.Millisecond, claim, []string{"turn alice:1 x", "turn alice:2 x"}},
		{500 * time.Millisecond, 150 * time.Millisecond, nil}, // when the new first is late
	} {
		w.wait(tt.wait)
		if a := w.visit(bob); a.Granted || !a.Free || a.TTL != tt.ttl {
			t.Errorf("after %v more: %+v, want to come again in %v", tt.wait, a, tt.ttl)
		}
		w.checkHeard(tt.told...)
	}
	w.wait(499 * time.Millisecond)
	if a := w.visit(wire.Entry{Waiter: "alice:2", Ticket: 2, TTL: life}); a.Granted || a.Holder != "alice:1" {
		t.Errorf("the third: %+v, want the second to have its time", a)
	}
	w.wait(time.Millisecond)
	if a := w.visit(bob); a.Granted || a.Holder != "alice:2" {
		t.Errorf("behind one that came: %+v", a)
	}
	w.checkQueue("alice:2", "bob:1", "carol:1")
}

func TestOneWithoutATicketCallsTheFirstOnly(t *testing.T) {
	w := gather(t).witness()
	w.grant("x", "holder:1", 1, 1)
	for i, waiter := range []quorumlock.Owner{"alice:1", "bob:1"} {
		w.queue(wire.Entry{Waiter: waiter, Ticket: int64(i), TTL: 100 * time.Second})
	}
	w.data.Del("x")
	for _, tt := range []struct {
		wait time.Duration
		want wire.Answer
		told []string
	}{
		{0, wire.Answer{Free: true, Holder: "alice:1", TTL: 650 * time.Millisecond, Position: -1}, []string{"turn alice:1 x"}},
		{650 * time.Millisecond, wire.Answer{Free: true, Holder: "alice:1", TTL: 350 * time.Millisecond, Position: -1}, nil},
		{350 * time.Millisecond, wire.Answer{Free: true, Holder: "bob:1", TTL: 650 * time.Millisecond, Position: -1}, []string{"turn bob:1 x"}},
	} {
		w.wait(tt.wait)
		if a := w.acquire("x", "try:1", 1, 1); a != tt.want {
			t.Errorf("answer %+v, want %+v", a, tt.want)
		}
		w.checkHeard(tt.told...)
	}
	w.wait(claim)
	if a := w.acquire("x", "try:1", 1, 1); !a.Granted {
		t.Errorf("nobody is left: %+v", a)
	}
	w.checkQueue()
}

// Nobody is called to a lock that is held.
func TestARefreshCallsNobodyWhileTheLockIsHeld(t *testing.T) {
	w := gather(t).witness()
	w.grant("x", "holder:1", 1, 1)
	w.queue(wire.Entry{Waiter: "alice:1", Ticket: 1, TTL: 100 * time.Second})
	for range 5 {
		if a := w.visit(wire.Entry{Waiter: "bob:1", Ticket: 2, TTL: life}); a.Free || a.Holder != "holder:1" {
			t.Errorf("answer %+v, want the holder", a)
		}
		w.wait(500 * time.Millisecond)
	}
	w.checkHeard()
}

func TestAnEntryThatWasEvictedKeepsNobodyWaiting(t *testing.T) {
	w := gather(t).witness()
	w.grant("x", "holder:1", 1, 1)
	w.dead(1, 30, lives["that refresh seldom"])
	w.queue(wire.Entry{Waiter: "bob:1", Ticket: 1000, TTL: life})
	w.data.Del("x")
	w.data.Del(wire.EntriesKey("x"))
	if a := w.visit(wire.Entry{Waiter: "bob:1", Ticket: 1000, TTL: life}); !a.Granted {
		t.Errorf("answer %+v", a)
	}
}

func TestALeaveTellsTheNewFirstThatItIsNext(t *testing.T) {
	seldom, often := 100*time.Second, life
	leave := wire.Leave("x", "alice:1", true)
	for _, tt := range []struct {
		name   string
		second time.Duration // the TTL of bob's entry
		leave  wire.Call
		free   bool
		told   []string
	}{
		{"it refreshes seldom", seldom, leave, false, []string{"next bob:1 x"}},
		{"it refreshes seldom, and nothing is taken back", seldom, wire.Leave("x", "alice:1", false), false, []string{"next bob:1 x"}},
		{"it refreshes often", often, leave, false, nil},
		{"the last one leaves", seldom, wire.Leave("x", "carol:1", true), false, nil},
		{"the second leaves", seldom, wire.Leave("x", "bob:1", true), false, nil},
		{"nobody leaves", seldom, wire.Leave("x", "dead:7", true), false, nil},
		{"the lock is free", seldom, leave, true, []string{"turn bob:1 x"}},
		{"it releases, too", seldom, wire.ReleaseAndLeave("x", "late:1", "alice:1", true), false, []string{"next bob:1 x"}},
		{"it releases, too, and nothing is taken back", seldom, wire.ReleaseAndLeave("x", "late:1", "alice:1", false), false, []string{"next bob:1 x"}},
		{"it releases, and the next refreshes often", often, wire.ReleaseAndLeave("x", "late:1", "alice:1", true), false, nil},
		{"the second releases", seldom, wire.ReleaseAndLeave("x", "late:1", "bob:1", true), false, nil},
		{"it releases the lock", seldom, wire.ReleaseAndLeave("x", "holder:1", "alice:1", true), false, []string{"turn bob:1 x"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := gather(t)
			c.grant("x", "holder:1", 1, 1)
			c.queue(wire.Entry{Waiter: "alice:1", Ticket: 1, TTL: seldom})
			c.queue(wire.Entry{Waiter: "bob:1", Ticket: 2, TTL: tt.second})
			c.queue(wire.Entry{Waiter: "carol:1", Ticket: 3, TTL: often})
			if tt.free {
				c.data.Del("x")
			}
			if r := c.send(tt.leave); r.Err != nil {
				t.Fatal(r.Err)
			}
			c.checkHeard(tt.told...)
		})
	}
}

func TestALeaveTellsALivingOneThatItIsNext(t *testing.T) {
	c := gather(t)
	c.grant("x", "holder:1", 1, 1)
	c.queue(wire.Entry{Waiter: "alice:1", Ticket: 1, TTL: time.Minute})
	c.queue(wire.Entry{Waiter: "carol:1", Ticket: 2, TTL: life})
	c.queue(wire.Entry{Waiter: "bob:1", Ticket: 3, TTL: time.Minute})
	c.wait(life)
	c.done(wire.Leave("x", "alice:1", true))
	c.checkHeard("next bob:1 x")
	c.checkQueue("bob:1")
}
