package scripts_test

import (
	"fmt"
	"github.com/quorumlock/quorumlock"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// longAfter is a server with a counter that was last touched long ago.
func longAfter(t *testing.T) *crowd {
	c := gather(t)
	c.now = time.UnixMilli(1_790_000_000_000)
	c.data.SetTime(c.now)
	c.put(wire.TokenKey("x"), "41")
	return c
}

// counting are the calls that count, or look after the counter, of one lock.
func counting(c *crowd) map[string]func() {
	holder := func() { c.grant("x", alice, 1, 100) }
	again := func(shared bool) {
		c.release("x", alice, 1)
		call := wire.Acquire("x", bob, ttl, 1, uint64(c.now.UnixMicro()))
		if shared {
			call = call.Shared()
		}
		c.send(call)
	}
	return map[string]func(){
		"a grant":         func() { holder(); again(false) },
		"a share":         func() { holder(); again(true) },
		"a grant again":   func() { holder(); c.send(wire.Acquire("x", alice, ttl, 2, 100)) },
		"a long grant":    func() { holder(); c.release("x", alice, 1); c.send(wire.Acquire("x", bob, 30*day, 1, 100)) },
		"a renewal":       func() { holder(); c.send(wire.Renew("x", alice, ttl)) },
		"a downgrade":     func() { holder(); c.send(wire.Downgrade("x", alice, ttl)) },
		"a raise":         func() { a := c.grant("x", alice, 1, 100); c.send(wire.Raise("x", alice, ttl, a.Token, a.Token+50)) },
		"a share's raise": func() { again(true); c.send(wire.Raise("x", bob, ttl, 41, 1<<50).Shared()) },
		"a restore":       func() { c.send(wire.Restore("x", alice, ttl, 1<<50)) },
		"a share kept":    func() { c.send(wire.Restore("x", alice, ttl, 1<<50).Shared()) },
		"a handoff":       func() { holder(); c.standWith("bob:1", 200, 1); c.release("x", alice, 1) },
	}
}

// Redisson's fenced locks make counters that have no expiry. If one of ours gave them one, Java's
// tokens would begin at 1 again. Nobody shortens what was set for years. What is about to expire is
// kept for a day longer than the lock.
func TestACounterIsNeverKeptForLess(t *testing.T) {
	const years = 3650 * day
	for before, want := range map[time.Duration]func(kept, lock time.Duration) bool{
		0:           func(kept, _ time.Duration) bool { return kept == 0 },
		years:       func(kept, _ time.Duration) bool { return kept == years },
		time.Minute: func(kept, lock time.Duration) bool { return kept >= lock+day },
	} {
		for name := range counting(nil) {
			t.Run(fmt.Sprint(name, " of one that was kept for ", before), func(t *testing.T) {
				c := longAfter(t)
				if before > 0 {
					c.data.SetTTL(wire.TokenKey("x"), before)
				}
				counting(c)[name]()
				if kept, lock := c.data.TTL(wire.TokenKey("x")), c.data.TTL("x"); !want(kept, lock) {
					t.Errorf("it expires in %v, and the lock in %v", kept, lock)
				}
				if token, _ := c.data.Get(wire.TokenKey("x")); token == "" || token == "41" && name != "a share" && name != "a share kept" {
					t.Errorf("the token is %q", token)
				}
			})
		}
	}
}

// A counter whose text INCRBY does not take is replaced, as long as it is a number.
func TestACounterThatIsNoIntegerGoesOn(t *testing.T) {
	for _, text := range []string{"41.5", " 41", "4.1e1"} {
		for left, want := range map[time.Duration]time.Duration{0: 0, time.Hour: kept, 100 * day: 100 * day} {
			c := gather(t)
			c.put(wire.TokenKey("x"), text)
			if left > 0 {
				c.data.SetTTL(wire.TokenKey("x"), left)
			}
			if a := c.grant("x", alice, 1, 100); a.Token != 100 {
				t.Errorf("%q: token %d, want the hint", text, a.Token)
			}
			c.checkToken("x", "100")
			if got := c.data.TTL(wire.TokenKey("x")); got != want {
				t.Errorf("%q, which had %v: it expires in %v, want %v", text, left, got, want)
			}
		}
	}
}

// A lock whose counter cannot be counted up is not handed over: the waiter is called, and its
// attempt says what is wrong.
func TestNothingIsHandedOverWithACounterThatIsNoInteger(t *testing.T) {
	c := gather(t)
	c.grant("x", alice, 1, 100)
	c.standWith("bob:1", 200, 1)
	c.put(wire.TokenKey("x"), "41.5")
	c.release("x", alice, 1)
	c.checkHold("x", quorumlock.Owner(""), "")
	if waiters, _ := c.data.ZMembers(wire.QueueKey("x")); len(waiters) != 1 {
		t.Errorf("%q wait", waiters)
	}
	c.checkHeard("turn bob:1 x")
}

// A reader takes the token of the last hold, so a handoff only reads the counter: a server without
// memory would refuse to write it.
func TestAHandoffToAReaderOnlyReadsTheCounter(t *testing.T) {
	c := gather(t)
	c.grant("x", alice, 1, 100)
	c.share("bob:1.7", wire.Entry{Waiter: "bob:1", Ticket: 200, TTL: life, Successor: wire.Successor{Attempt: 1, TTL: lent, Cell: 7, Secret: "s"}})
	c.put(wire.TokenKey("x"), "41.0") // INCRBY would refuse this
	c.release("x", alice, 1)
	if held, err := c.data.HKeys("x"); err != nil || len(held) != 2 {
		t.Errorf("the lock has %q, %v, want the reader and the mode", held, err)
	}
	c.checkToken("x", "41.0")
}
