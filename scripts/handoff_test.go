package scripts_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
)

const (
	lent   = time.Second // the TTL of the handoffs
	secret = "SECRET"    // of every waiter
)

// heir is the successor of an attempt, at cell 7.
func heir(attempt int, lent time.Duration) wire.Successor {
	return wire.Successor{Attempt: attempt, TTL: lent, Cell: 7, Secret: secret}
}

// standWith is an attempt of a waiter that names a successor.
func (s *server) standWith(waiter quorumlock.Owner, ticket int64, attempt int) wire.Answer {
	s.Helper()
	return s.queue(wire.Entry{Waiter: waiter, Ticket: ticket, TTL: life, Successor: heir(attempt, lent)})
}

// handoff is the message of a handoff of x at cell 7, with its proof. What is a token, or one of a
// slot.
func handoff(waiter quorumlock.Owner, attempt int, what string) string {
	proof := wire.SHA1(fmt.Sprintf("%s %s %d 7 %s x %s", secret, string(waiter), attempt, what, secret))
	return fmt.Sprintf("handoff %s %d 7 %s %s x", string(waiter), attempt, what, proof)
}

func TestAReleaseHandsOverToTheFirstInTheQueue(t *testing.T) {
	s := busy(t)
	s.standWith("bob:1", 200, 1)
	s.standWith("alice:1", 100, 3)
	s.wait(lent / 2)
	s.release("x", "holder:1", 1)
	s.checkHold("x", "alice:1/3.7", "1")
	s.checkTTL("x", lent)
	s.checkToken("101")
	s.checkTTL(wire.TokenKey("x"), kept-lent/2)
	s.checkQueue("bob:1")
	s.checkHeard(handoff("alice:1", 3, "101"))
	s.checkDone(wire.Renew("x", "alice:1/3.7", ttl), true)
	s.checkTTL("x", ttl)
	s.wait(time.Millisecond)
	s.release("x", "alice:1/3.7", 1)
	s.checkHold("x", "bob:1", "") // bob came too long ago
	s.checkHeard("turn bob:1 x")
}

func TestNothingIsHandedOverWithout(t *testing.T) {
	came := func(s *server) { s.standWith("alice:1", 100, 1) }
	for _, tt := range []struct {
		name    string
		prepare func(s *server)
		counter string // before the release
		after   string
	}{
		{"a successor", func(s *server) { s.stand("alice:1", 100) }, "100", "100"},
		{"a waiter who came a moment ago", func(s *server) { came(s); s.wait(lent/2 + time.Millisecond) }, "100", "100"},
		{"one who came 0.65 s ago at most, for however long", func(s *server) {
			s.queue(wire.Entry{Waiter: "alice:1", Ticket: 100, TTL: life, Successor: heir(1, 1800*time.Millisecond)})
			s.wait(651 * time.Millisecond)
		}, "100", "100"},
		{"a clock that goes forward", func(s *server) { came(s); s.setClock(s.now.Add(-10 * time.Second)) }, "100", "100"},
		{"a counter", came, "", ""},
		{"a counter above zero", came, "-1", ""},
		{"a counter that is an integer", came, "41.5", "41.5"},
		{"a counter with a number to come", came, "9007199254740991", "9007199254740991"},
		{"a secret that proves it", func(s *server) {
			s.queue(wire.Entry{Waiter: "alice:1", Ticket: 100, TTL: life, Successor: wire.Successor{Attempt: 1, TTL: lent, Cell: 7}})
		}, "100", "100"},
		{"what is stored of the waiter", func(s *server) { came(s); s.data.HSet(wire.EntriesKey("x"), "alice:1", "99999999999999 1") }, "100", "100"},
		{"Redisson's clients having their chance", func(s *server) {
			came(s)
			confirmed := make(chan struct{}, 9)
			s.Cleanup(transport.Of(s.node).Listen(wire.UnlockChannel("x"), func(string) { confirmed <- struct{}{} }))
			<-confirmed
		}, "100", "100"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := busy(t)
			tt.prepare(s)
			s.put(wire.TokenKey("x"), tt.counter)
			if tt.counter == "" {
				s.data.Del(wire.TokenKey("x"))
			}
			s.release("x", "holder:1", 1)
			s.checkHold("x", "", "")
			s.checkToken(tt.after)
			s.data.Del(wire.TokenKey("x"))
			s.checkQueue("alice:1")
			s.checkHeard("turn alice:1 x")
		})
	}
}

func TestTheNextAttemptTakesOverEarlierHandoffs(t *testing.T) {
	s := busy(t)
	s.standWith("alice:1", 100, 9)
	s.standWith("bob:1", 50, 1)
	s.standWith("bob:1", 50, 2)
	s.release("x", "holder:1", 1)
	for what, a := range map[string]wire.Answer{
		"an earlier attempt, which comes late": s.standWith("bob:1", 50, 1), "the same attempt": s.standWith("bob:1", 50, 2),
		"an attempt without a successor": s.stand("bob:1", 50), "somebody else": s.standWith("alice:1", 100, 10),
	} {
		if a.Granted || a.Holder != "bob:1/2.7" {
			t.Errorf("%s: %+v, want a refusal", what, a)
		}
	}
	s.checkHold("x", "bob:1/2.7", "1")
	if a := s.standWith("bob:1", 50, 3); !a.Granted || a.Again || a.Token != 102 {
		t.Errorf("%+v, want the lock with the next token", a)
	}
	s.checkHold("x", "hold:bob:1", "1")
	s.checkTTL("x", ttl)
	s.checkQueue("alice:1")
}
