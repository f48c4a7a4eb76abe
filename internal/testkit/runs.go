package testkit

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
)

// Ran returns the number of runs of the named scripts at the servers, or of all without names.
func Ran(servers []*embedded.Server, scripts ...string) (n int) {
	for _, s := range servers {
		n += s.Ran(scripts...)
	}
	return n
}

// Arrive delays the arrival of scripts by d. It spares subscriptions: go-redis holds a mutex while
// it subscribes, and time stands still in a bubble while a goroutine waits for a mutex.
func Arrive(s *embedded.Server, d time.Duration) {
	s.Before(func(embedded.Run) { time.Sleep(d) })
}

// Block holds back the nth run of a script at a server, from 1, until the channel is closed.
func Block(s *embedded.Server, script string, nth int32, until <-chan struct{}) {
	var runs atomic.Int32
	s.Before(func(r embedded.Run) {
		if r.Script == script && runs.Add(1) == nth {
			<-until
		}
	})
}

// UpTo returns a random time below d.
func UpTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
