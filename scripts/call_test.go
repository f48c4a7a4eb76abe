package scripts_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

const claim = time.Second // in which a waiter that is called must come

// witness sees what is stored of the waiters.
type witness struct {
	*crowd
	turn map[string]int // how often a waiter was called since it came last
}

func (c *crowd) witness() *witness { return &witness{c, make(map[string]int)} }

// stored returns what the node has stored of each waiter.
func (w *witness) stored() map[string]string {
	m := make(map[string]string)
	keys, _ := w.data.HKeys(wire.EntriesKey("x"))
	for _, k := range keys {
		m[k] = w.data.HGet(wire.EntriesKey("x"), k)
	}
	return m
}

// visit is an attempt of a waiter. It checks that no deadline of another waiter is cut below a
// claim from now, that nothing else of it is changed, and that it is called once for each time it
// comes.
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

// servedAfter lets waiters come when they are called, and returns who is granted the lock first,
// and after how long.
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
		if a := w.queue(bob); a.Granted || !a.Free || a.TTL != tt.ttl {
			t.Errorf("after %v more: %+v, want to come again in %v", tt.wait, a, tt.ttl)
		}
		w.checkHeard(tt.told...)
	}
	w.wait(499 * time.Millisecond)
	if a := w.queue(wire.Entry{Waiter: "alice:2", Ticket: 2, TTL: life}); a.Granted || a.Holder != "alice:1" {
		t.Errorf("the third: %+v, want the second to have its time", a)
	}
	w.wait(time.Millisecond)
	if a := w.queue(bob); a.Granted || a.Holder != "alice:2" {
		t.Errorf("behind one that came: %+v", a)
	}
	w.checkQueue("alice:2", "bob:1", "carol:1")
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
