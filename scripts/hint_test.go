package scripts_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// trusted is how far from the node's clock a hint may be where the node looks.
const trusted = time.Minute

func TestTokensRiseAndFollowTheHintWithinAMinuteOfTheNodesClock(t *testing.T) {
	const now, none = 1_790_000_033_000_000, 0 // µs
	const soon = now/10_000_000*10_000_000 + 10_000_000
	at := func(d time.Duration) uint64 { return uint64(now + d.Microseconds()) }
	begins := at(2*time.Minute) / 60_000_000 * 60_000_000 // a minute; now is not at the beginning of one
	for _, tt := range []struct {
		name   string
		clock  int64  // in µs
		before uint64 // the counter
		hint   uint64
		want   uint64
	}{
		{"no counter, no hint", 0, none, 0, 1},
		{"no counter", 0, none, 500, 500},
		{"a lower hint", 0, 700, 500, 701},
		{"the same hint", 0, 700, 700, 701},
		{"the next", 0, 700, 701, 701},
		{"a higher hint", 0, 700, 5000, 5000},
		{"the clock of today", now, 1, now, now},
		{"digits are kept at 2^52", 0, 4503599627370496, 0, 4503599627370497},
		{"digits are kept above 2^52", 4503599627370497, none, 4503599627370499, 4503599627370499},
		{"the last one", 0, 9007199254740990, 0, 9007199254740991},
		{"a hint of the last one", 9007199254740991, none, 9007199254740991, 9007199254740991},
		{"no counter, the same clock", now, none, now, now},
		{"no counter, a minute ahead", now, none, at(trusted), at(trusted)},
		{"no counter, more than a minute ahead", now, none, at(trusted) + 1, soon},
		{"no counter, a year ahead", now, none, at(year), soon},
		{"no counter, ahead of what can be counted", now, none, 1<<53 + 1, soon},
		{"no counter, a minute behind", now, none, at(-trusted), at(-trusted)},
		{"no counter, more than a minute behind", now, none, at(-trusted) - 1, soon},
		{"no counter, a year behind", now, none, at(-year), soon},
		{"no counter, no clock", now, none, 0, soon},
		{"the same clock", now, at(-day), now, now},
		{"a minute ahead", now, at(-day), at(trusted), at(trusted)},
		{"more than a minute ahead", now, at(-time.Second), at(trusted) + 1, at(-time.Second) + 1},
		{"more than a minute ahead, in the minute of the counter", now, at(2 * trusted), at(2*trusted + time.Second), at(2*trusted + time.Second)},
		{"more than a minute ahead, in the first seconds of the minute of the counter", now, begins, begins + 3_000_000, begins + 1},
		{"more than a minute ahead, in the minute after", now, at(2 * trusted), at(3 * trusted), at(2*trusted) + 1},
		{"behind the counter, in its minute", now, at(time.Second), now, at(time.Second) + 1},
		{"a year ahead", now, at(-time.Second), at(year), at(-time.Second) + 1},
		{"ahead of what can be counted", now, at(-time.Second), 1<<53 + 1, at(-time.Second) + 1},
		{"a year behind", now, at(-time.Second), at(-year), at(-time.Second) + 1},
		{"behind the counter", now, at(30 * time.Minute), now, at(30*time.Minute) + 1},
		{"ahead, and so is the counter", now, at(2 * day), at(year), at(2*day) + 1},
		// A lower counter may be one that Redisson began at 1 again, after one that has ended.
		{"a counter of a minute ago, a year ahead", now, at(-trusted), at(year), at(-trusted) + 1},
		{"a counter of more than a minute ago, a year ahead", now, at(-trusted) - 1, at(year), soon},
		{"a counter of more than a minute ago, a year behind", now, 5, at(-year), soon},
		{"a counter of more than a minute ago, less than a minute behind", now, 5, at(-time.Second), at(-time.Second)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t)
			if tt.clock > 0 {
				s.setClock(time.UnixMicro(tt.clock))
			}
			if tt.before != none {
				s.put(wire.TokenKey("x"), fmt.Sprint(tt.before))
			}
			if a := s.grant("x", alice, 1, tt.hint); a.Token != tt.want {
				t.Errorf("token %d, want %d: off by %d µs", a.Token, tt.want, int64(a.Token-tt.want))
			}
			if in := s.inspect("x"); in.Token != tt.want {
				t.Errorf("the counter is %d, want %d in plain digits", in.Token, tt.want)
			}
		})
	}
}

// Redisson begins a missing counter at 1. A reader goes on from the clock, as a writer does.
func TestAReaderGoesOnFromNoCounterOfRedissonsThatIsNew(t *testing.T) {
	s := start(t)
	s.setClock(today)
	before := s.grant("x", alice, 1, uint64(today.UnixMicro()))
	s.release("x", alice, 1)
	s.wait(5 * time.Minute)
	s.put(wire.TokenKey("x"), "1")
	for _, owner := range []quorumlock.Owner{bob, "carol:1"} {
		if a := s.acquired(wire.Acquire("x", owner, ttl, 1, uint64(s.now.UnixMicro())).Shared()); a.Token <= before.Token {
			t.Errorf("a reader has the token %d after %d", a.Token, before.Token)
		}
	}
	if d := s.data.TTL(wire.TokenKey("x")); d != 0 {
		t.Errorf("Redisson's counter ends after %v", d)
	}
}
