package scripts_test

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

func TestAFreeLockIsGrantedAndARefusalChangesNothing(t *testing.T) {
	s := start(t)
	s.checkAnswer(wire.Acquire("x", alice, ttl, 1, 100), wire.Answer{Granted: true, Token: 100, Position: -1})
	s.checkTTL(wire.TokenKey("x"), kept)
	s.checkTTL("x", ttl)
	s.data.FastForward(3 * time.Second)
	s.checkAnswer(wire.Acquire("x", bob, ttl, 1, 900), wire.Answer{Holder: alice, TTL: 7 * time.Second, Position: -1})
	s.checkHold("x", alice, "1")
	s.checkTTL("x", 7*time.Second)
	s.checkToken("100")
}

func TestOnlyTheNextEntryOrTheSameIsGranted(t *testing.T) {
	for _, tt := range []struct {
		name    string
		held    int // entries of the owner before
		hold    int
		granted bool
		after   string
	}{
		{"the first", 0, 1, true, "1"},
		{"the first, again", 1, 1, true, "1"},
		{"the second", 1, 2, true, "2"},
		{"the second, again", 2, 2, true, "2"},
		{"the second of a free lock", 0, 2, false, ""},
		{"the third after the first", 1, 3, false, "1"},
		{"the first when the second is held", 2, 1, false, "2"},
		{"the tenth after the ninth", 9, 10, true, "10"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t)
			for hold := 1; hold <= tt.held; hold++ {
				s.grant("x", alice, hold, 100)
			}
			a := s.acquire("x", alice, tt.hold, 900)
			if a.Granted != tt.granted || a.Again != (tt.granted && tt.held > 0) || a.Again && a.Token != 100 {
				t.Errorf("answer %+v, want granted %v, with one token for the whole hold", a, tt.granted)
			}
			s.checkHold("x", alice, tt.after)
		})
	}
}

func TestAcquireThatCannotCountWritesNothing(t *testing.T) {
	acquire := wire.Acquire("x", alice, ttl, 1, 1)
	for _, tt := range []struct {
		name   string
		before func(*server)
		call   wire.Call
		want   string
	}{
		{"exhausted", func(s *server) { s.put(wire.TokenKey("x"), "9007199254740991") }, acquire, "the fencing token is exhausted: use another lock name"},
		{"restoring what is beyond the last token", func(*server) {}, wire.Restore("x", alice, ttl, 9007199254740993), "the fencing token is exhausted"},
		{"not a number", func(s *server) { s.put(wire.TokenKey("x"), "seven") }, acquire, "the fencing token is not a number: delete redisson_lock_token:{x}"},
		{"not a string", func(s *server) { s.data.ZAdd(wire.TokenKey("x"), 1, "a") }, acquire, "is not a number"},
		{"a semaphore's", func(s *server) { s.data.HSet(wire.TokenKey("x"), "0", "7") }, acquire, "and is a semaphore"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t)
			tt.before(s)
			s.refuses(tt.call, nil, tt.want)
		})
	}
}

func TestTTLIsRoundedUpToTheMillisecond(t *testing.T) {
	for _, tt := range []struct{ ttl, want, kept, renewed time.Duration }{
		{10 * time.Millisecond, 10 * time.Millisecond, kept, kept - 5*time.Millisecond},
		{10*time.Millisecond + 1, 11 * time.Millisecond, kept, kept - 5500*time.Microsecond},
		{11*time.Millisecond - 1, 11 * time.Millisecond, kept, kept - 5500*time.Microsecond},
		{1500 * time.Microsecond, 2 * time.Millisecond, kept, kept - time.Millisecond},
		{2 * time.Minute, 2 * time.Minute, kept, kept - time.Minute},
		{2*time.Minute + 1, 2*time.Minute + time.Millisecond, kept + time.Millisecond, kept + time.Millisecond},
		{30 * day, 30 * day, 30*day + 2*time.Minute, 30*day + 2*time.Minute},
	} {
		s := start(t)
		s.acquired(wire.Acquire("x", alice, tt.ttl, 1, 1))
		s.checkTTL("x", tt.want)
		s.checkTTL(wire.TokenKey("x"), tt.kept)
		s.data.FastForward(tt.want / 2)
		s.checkDone(wire.Renew("x", alice, tt.ttl), true)
		s.checkTTL("x", tt.want)
		s.checkTTL(wire.TokenKey("x"), tt.renewed)
	}
}
