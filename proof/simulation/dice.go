package simulation

import (
	"math/rand/v2"
	"time"
)

// dice decides the fate of a message from the seed and the message, never from the order in which
// goroutines run: so one seed makes one schedule.
type dice uint64

// of returns the dice for one more thing.
func (d dice) of(things ...string) dice {
	h := uint64(d) ^ 14695981039346656037
	for _, s := range things {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * 1099511628211
		}
		h = (h ^ 0xff) * 1099511628211
	}
	return dice(mixed(h))
}

// mixed spreads every bit over all others (Steele, Lea, Flood: "Fast splittable pseudorandom number
// generators").
func mixed(h uint64) uint64 {
	h += 0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// share is a number in [0, 1).
func (d dice) share() float64 { return float64(d>>11) / (1 << 53) }

// below is a duration in [0, limit).
func (d dice) below(limit time.Duration) time.Duration {
	return time.Duration(d.share() * float64(limit))
}

// generator makes the plan of a seed.
type generator struct{ *rand.Rand }

func newGenerator(seed uint64) generator {
	return generator{rand.New(rand.NewPCG(seed, 0x5eed))}
}

func (g generator) between(from, to time.Duration) time.Duration {
	return from + time.Duration(g.Int64N(int64(to-from)+1))
}

func (g generator) chance(p float64) bool { return g.Float64() < p }

func pick[T any](g generator, from ...T) T { return from[g.IntN(len(from))] }
