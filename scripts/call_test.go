package scripts_test

import (
	"fmt"
	"slices"
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
	*server
	turn map[string]int // how often a waiter was called since it came last
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
		old, _, _ = strings.Cut(old, ",")
		if ends, _, marked := strings.Cut(deadline, ","); marked && ends == old && rest == oldRest {
			continue
		}
		if ms, err := strconv.ParseInt(old, 10, 64); err != nil || ms < called || deadline != fmt.Sprint(called) || rest != oldRest {
			w.Errorf("at %d the entry of %s becomes %q, and was %q", w.now.UnixMilli(), who, after, was)
		}
	}
	for _, m := range w.since() {
		f := strings.Fields(m)
		if w.turn[f[1]]++; f[0] != "turn" || f[1] == string(e.Waiter) || w.turn[f[1]] > 1 {
			w.Errorf("%s comes, and %q is told, time %d", e.Waiter, m, w.turn[f[1]])
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

// serves lets waiters come when they are called, and checks who is granted the lock first, within
// two seconds.
func (w *witness) serves(want quorumlock.Owner, waiters ...wire.Entry) {
	w.Helper()
	start := w.now
	due := slices.Repeat([]time.Time{start}, len(waiters))
	for range 100 {
		next := slices.Index(due, slices.MinFunc(due, time.Time.Compare))
		w.wait(max(0, due[next].Sub(w.now)))
		a, after := w.visit(waiters[next]), w.now.Sub(start)
		if a.Granted {
			if got := waiters[next].Waiter; got != want || after > 2*time.Second {
				w.Errorf("%s has it after %v, want %s", got, after, want)
			}
			return
		}
		if !a.Free || a.TTL <= 0 || a.TTL > claim {
			w.Fatalf("after %v: %+v, want a free lock, and to come again within %v", after, a, claim)
		}
		due[next] = w.now.Add(a.TTL)
	}
	w.Fatal("nobody is served")
}

// A lock that expired, which calls nobody, is passed on within two seconds, however many are dead.
// Of living waiters behind the dead, the first is served first.
func TestTheDeadInAQueueKeepTheLivingOutForTwoSecondsAtMost(t *testing.T) {
	bob := wire.Entry{Waiter: "bob:1", Ticket: 1000, TTL: life}
	for what, life := range lives {
		for _, n := range []int{1, 2, 30, 99, 100, 150, 198, 250, 300} {
			t.Run(fmt.Sprint(n, " dead ", what), func(t *testing.T) {
				w := &witness{busy(t), make(map[string]int)}
				w.dead(1, n, life)
				w.queue(bob)
				w.since()
				w.data.Del("x")
				w.serves("bob:1", bob)
			})
		}
		t.Run("three among dead "+what, func(t *testing.T) {
			w := &witness{busy(t), make(map[string]int)}
			alice := wire.Entry{Waiter: "alice:1", Ticket: 500, TTL: 2 * time.Second}
			carol := wire.Entry{Waiter: "carol:1", Ticket: 1001, TTL: 2 * time.Second}
			bob := bob
			bob.TTL = 100 * time.Second
			w.dead(1, 30, life)
			w.queue(alice)
			w.dead(501, 30, life)
			w.queue(bob)
			w.queue(carol)
			w.since()
			w.data.Del("x")
			w.serves("alice:1", carol, bob, alice)
			w.data.Del("x")
			w.serves("bob:1", carol, bob)
		})
	}
}

// The first has 650 ms. Then everybody else who is before has its second, at the same time.
func TestAFirstThatDoesNotComeHasEverybodyBeforeTheAskerCalled(t *testing.T) {
	s := busy(t)
	for i, waiter := range []quorumlock.Owner{"dead:1", "alice:1", "alice:2", "bob:1", "carol:1"} {
		s.queue(wire.Entry{Waiter: waiter, Ticket: int64(i), TTL: 100 * time.Second})
	}
	s.data.Del("x")
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
		s.wait(tt.wait)
		if a := s.queue(bob); a.Granted || !a.Free || a.TTL != tt.ttl {
			t.Errorf("after %v more: %+v, want to come again in %v", tt.wait, a, tt.ttl)
		}
		s.checkHeard(tt.told...)
	}
	s.wait(499 * time.Millisecond)
	s.checkRefused(s.queue(wire.Entry{Waiter: "alice:2", Ticket: 2, TTL: life}), "alice:1")
	s.wait(time.Millisecond)
	s.checkRefused(s.queue(bob), "alice:2")
	s.checkQueue("alice:2", "bob:1", "carol:1")
}

// A first that does not come is overdue. The waiters behind it are called once, and once more for
// the next overdue first. A first that came, and is overdue again, is the next one.
func TestEachWaiterIsCalledOnceForAnOverdueFirst(t *testing.T) {
	s := busy(t)
	asks := func(waiter quorumlock.Owner, ticket int64, told ...string) {
		t.Helper()
		s.queue(wire.Entry{Waiter: waiter, Ticket: ticket, TTL: 2 * time.Second})
		s.checkHeard(told...)
	}
	for range 2 {
		asks("dead:1", 10)
		asks("alice:1", 20)
		asks("bob:1", 30)
		asks("carol:1", 40)
		s.data.Del("x")
		asks("bob:1", 30) // calls the first
		s.wait(650 * time.Millisecond)
		asks("bob:1", 30, "turn alice:1 x")
		asks("alice:1", 20)
		asks("alice:2", 25) // it comes between those who have been called
		asks("bob:1", 30)
		asks("carol:1", 40, "turn bob:1 x")
		asks("bob:1", 30)
		asks("carol:1", 40)
		s.data.HSet("x", "holder:1", "1", "mode", "mutex")
		s.do(wire.Leave("x", "alice:2", true))
	}
	s.data.Del("x")
	s.wait(350 * time.Millisecond)
	asks("carol:1", 40, "turn alice:1 x")
	s.wait(650 * time.Millisecond)
	asks("bob:1", 30)
	asks("carol:1", 40, "turn bob:1 x")
	asks("carol:1", 40)
	s.checkQueue("alice:1", "bob:1", "carol:1")
}
