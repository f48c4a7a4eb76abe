package scripts_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

const (
	year = 365 * day

	// trusted is how far from the node's clock a hint may be where the node looks.
	trusted = 59 * time.Minute
)

func TestAHintCountsOnlyWithinAnHourOfTheNodesClock(t *testing.T) {
	const now = 1_790_000_000_000_000 // µs
	at := func(d time.Duration) uint64 { return uint64(now + d.Microseconds()) }
	const none = 0
	begins := at(trusted+time.Minute) / 60_000_000 * 60_000_000 // a minute; now is not at the beginning of one
	for _, tt := range []struct {
		name   string
		before uint64 // the counter
		hint   uint64
		want   uint64
	}{
		{"no counter, the same clock", none, now, now},
		{"no counter, 59 minutes ahead", none, at(trusted), at(trusted)},
		{"no counter, more than 59 minutes ahead", none, at(trusted) + 1, now},
		{"no counter, a year ahead", none, at(year), now},
		{"no counter, ahead of what can be counted", none, 1<<53 + 1, now},
		{"no counter, 59 minutes behind", none, at(-trusted), at(-trusted)},
		{"no counter, more than 59 minutes behind", none, at(-trusted) - 1, now},
		{"no counter, 48 hours behind", none, at(-2 * day), now},
		{"no counter, a year behind", none, at(-year), now},
		{"no counter, no clock", none, 0, now},
		{"the same clock", at(-day), now, now},
		{"59 minutes ahead", at(-day), at(trusted), at(trusted)},
		{"more than 59 minutes ahead", at(-day), at(trusted) + 1, at(-day) + 1},
		{"more than 59 minutes ahead, in the minute of the counter", at(trusted), at(trusted + time.Second), at(trusted + time.Second)},
		{"more than 59 minutes ahead, in the first seconds of the minute of the counter", begins, begins + 3_000_000, begins + 1},
		{"more than 59 minutes ahead, in the minute after", at(trusted), at(trusted + time.Minute), at(trusted) + 1},
		{"behind the counter, in its minute", at(time.Second), now, at(time.Second) + 1},
		{"a year ahead", at(-day), at(year), at(-day) + 1},
		{"ahead of what can be counted", at(-day), 1<<53 + 1, at(-day) + 1},
		{"a year behind", at(-day), at(-year), at(-day) + 1},
		{"behind the counter", at(30 * time.Minute), now, at(30*time.Minute) + 1},
		{"ahead, and so is the counter", at(2 * day), at(year), at(2*day) + 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := start(t)
			s.data.SetTime(time.UnixMicro(now))
			if tt.before != none {
				s.put(wire.TokenKey("x"), fmt.Sprint(tt.before))
			}
			if a := s.grant("x", alice, 1, tt.hint); a.Token != tt.want {
				t.Errorf("token %d, want %d: off by %d µs", a.Token, tt.want, int64(a.Token-tt.want))
			}
		})
	}
}

// TestTokensRiseWhateverTheClientsClocksSay lets clients with all sorts of clocks take a lock in
// random order, with pauses of up to days.
func TestTokensRiseWhateverTheClientsClocksSay(t *testing.T) {
	clocks := []time.Duration{0, time.Minute, -time.Minute, trusted, trusted + 30*time.Second, time.Hour, -time.Hour, 61 * time.Minute, -61 * time.Minute, 48 * time.Hour, -48 * time.Hour, year, -year}
	pauses := []time.Duration{time.Millisecond, time.Second, time.Hour - 2*time.Second, time.Hour, 2*time.Hour + time.Second, day, day + ttl, day + 2*time.Hour, 10 * day}
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			c := gather(t)
			c.now = time.UnixMilli(1_790_000_000_000)
			c.data.SetTime(c.now)
			random := rand.New(rand.NewPCG(seed, 0))
			last := uint64(0)
			for step := range 60 {
				owner := quorumlock.Owner(fmt.Sprintf("step:%d", step))
				clock := clocks[random.IntN(len(clocks))]
				ttl := []time.Duration{time.Second, ttl, time.Hour}[random.IntN(3)]
				a, err := c.send(wire.Acquire("x", owner, ttl, 1, uint64(c.now.Add(clock).UnixMicro()))).Acquired()
				if err != nil || !a.Granted {
					t.Fatal(a, err)
				}
				if a.Token <= last {
					t.Fatalf("step %d, by a clock that is %v ahead: token %d after %d", step, clock, a.Token, last)
				}
				if ahead := time.UnixMicro(int64(a.Token)).Sub(c.now); ahead > time.Hour+time.Millisecond {
					t.Fatalf("step %d, by a clock that is %v ahead: the token is %v ahead", step, clock, ahead)
				}
				last = a.Token
				if random.IntN(2) == 0 && !c.done(wire.Renew("x", owner, ttl)) {
					t.Fatal("not renewed")
				}
				if left := c.data.TTL(wire.TokenKey("x")); left < ttl+day || left > kept+time.Hour {
					t.Fatalf("step %d, by a clock that is %v ahead: the counter is kept for %v", step, clock, left)
				}
				c.release("x", owner, 1)
				c.wait(pauses[random.IntN(len(pauses))])
			}
		})
	}
}
