package scripts_test

import (
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

func TestAcquireOfAFreeLockIsGranted(t *testing.T) {
	s := start(t)
	if a := s.acquire("x", alice, 1, 100); a != (wire.Answer{Granted: true, Token: 100, Position: -1}) {
		t.Errorf("answer %+v", a)
	}
	s.checkHold("x", alice, "1")
	s.checkTTL("x", ttl)
	s.checkToken("x", "100")
	s.checkTTL(wire.TokenKey("x"), kept)
}

func TestAcquireOfAHeldLockIsRefusedAndChangesNothing(t *testing.T) {
	s := start(t)
	s.grant("x", alice, 1, 100)
	s.data.FastForward(3 * time.Second)
	if a := s.acquire("x", bob, 1, 900); a != (wire.Answer{Holder: alice, TTL: 7 * time.Second, Position: -1}) {
		t.Errorf("answer %+v, want a refusal with 7s", a)
	}
	s.checkHold("x", alice, "1")
	s.checkTTL("x", 7*time.Second)
	s.checkToken("x", "100")
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
		{"the third", 2, 3, true, "3"},
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
			if a.Granted != tt.granted || a.Again != (tt.granted && tt.held > 0) {
				t.Errorf("answer %+v", a)
			}
			if a.Granted && a.Again && a.Token != 100 {
				t.Errorf("token %d within one hold, want 100 still", a.Token)
			}
			s.checkHold("x", alice, tt.after)
		})
	}
}

func TestTokensRiseAndFollowTheHint(t *testing.T) {
	for _, tt := range []struct {
		name   string
		now    int64  // µs of the node's clock; 0: near the epoch
		before string // the counter; empty: there is none
		hint   uint64
		want   uint64
	}{
		{"no counter, no hint", 0, "", 0, 1},
		{"no counter", 0, "", 500, 500},
		{"a lower hint", 0, "700", 500, 701},
		{"the same hint", 0, "700", 700, 701},
		{"the next", 0, "700", 701, 701},
		{"a higher hint", 0, "700", 5000, 5000},
		{"the clock of today in µs", 1_790_000_000_000_000, "1", 1_790_000_000_000_000, 1_790_000_000_000_000},
		{"digits are kept at 2^52", 0, "4503599627370496", 0, 4503599627370497},
		{"digits are kept above 2^52", 4503599627370497, "", 4503599627370499, 4503599627370499},
		{"the last one", 0, "9007199254740990", 0, 9007199254740991},
		{"a hint of the last one", 9007199254740991, "", 9007199254740991, 9007199254740991},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t)
			if tt.now > 0 {
				s.data.SetTime(time.UnixMicro(tt.now))
			}
			if tt.before != "" {
				s.put(wire.TokenKey("x"), tt.before)
			}
			a := s.grant("x", alice, 1, tt.hint)
			if a.Token != tt.want {
				t.Errorf("token %d, want %d", a.Token, tt.want)
			}
			in, err := s.send(wire.Inspect("x", 100)).Inspected()
			if err != nil || in.Token != tt.want {
				t.Errorf("the counter is %d, %v, want %d in plain digits", in.Token, err, tt.want)
			}
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
			before := s.data.Dump()
			_, err := s.send(tt.call).Acquired()
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
			if after := s.data.Dump(); after != before {
				t.Errorf("it wrote all the same:\n%s", after)
			}
		})
	}
}

func TestTTLIsRoundedUpToTheMillisecond(t *testing.T) {
	for _, tt := range []struct{ ttl, want, kept, renewed time.Duration }{
		{10 * time.Millisecond, 10 * time.Millisecond, kept, kept - 5*time.Millisecond},
		{10*time.Millisecond + 1, 11 * time.Millisecond, kept, kept - 5500*time.Microsecond},
		{11*time.Millisecond - 1, 11 * time.Millisecond, kept, kept - 5500*time.Microsecond},
		{1500 * time.Microsecond, 2 * time.Millisecond, kept, kept - time.Millisecond},
		{time.Hour, time.Hour, kept, kept - 30*time.Minute},
		{time.Hour + 1, time.Hour + time.Millisecond, day + 3*time.Hour + time.Millisecond, kept - 30*time.Minute + time.Millisecond/2},
		{30 * day, 30 * day, 31*day + 2*time.Hour, 31*day + 2*time.Hour},
	} {
		s := start(t)
		if _, err := s.send(wire.Acquire("x", alice, tt.ttl, 1, 1)).Acquired(); err != nil {
			t.Fatal(err)
		}
		s.checkTTL("x", tt.want)
		s.checkTTL(wire.TokenKey("x"), tt.kept)
		s.data.FastForward(tt.want / 2)
		if !s.done(wire.Renew("x", alice, tt.ttl)) {
			t.Error("not renewed")
		}
		s.checkTTL("x", tt.want)
		s.checkTTL(wire.TokenKey("x"), tt.renewed)
	}
}
