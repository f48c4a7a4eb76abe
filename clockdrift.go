package quorumlock

import (
	"math"
	"time"

	"github.com/quorumlock/quorumlock/internal/settings"
)

// Drift is the allowance of a lease for clocks that run at different rates. The client measures the
// validity of the lease on its own clock, and the nodes expire the key on theirs.
//
//	drift    = Rate × TTL + Floor
//	validity = TTL − elapsed − drift
//
// It is the CLOCK_DRIFT term of the Redlock algorithm (redis.io, "Distributed Locks with Redis").
// The zero value allows for no drift. A Drift is a value and safe for concurrent use.
type Drift struct {
	Rate  float64       // the largest difference between clock rates, in [0, 1): 0.01 is 1 %
	Floor time.Duration // added to every allowance, for the resolution of a node's expiry (1 ms)
}

// DefaultDrift returns the allowance without [WithDrift]: 1 % of the TTL plus 2 ms.
func DefaultDrift() Drift { return Drift{Rate: 0.01, Floor: 2 * time.Millisecond} }

// Validity returns the remaining validity of a lease of ttl. elapsed counts from just before the
// successful attempt, or the last successful renewal, was sent. A result of 0 or less means that the
// lease is over.
//
// It is pure arithmetic. The result never exceeds ttl, never grows with elapsed, and saturates
// instead of overflowing. A negative elapsed counts as 0; an invalid d leaves no validity.
func (d Drift) Validity(ttl, elapsed time.Duration) time.Duration {
	if settings.CheckDrift(d.Rate, d.Floor) != nil {
		return min(ttl, 0)
	}
	left := subtract(ttl, max(elapsed, 0))
	left = subtract(left, d.Floor)
	return subtract(left, d.share(ttl))
}

// share is Rate × ttl, rounded up.
func (d Drift) share(ttl time.Duration) time.Duration {
	if ttl <= 0 {
		return 0
	}
	f := math.Ceil(d.Rate * float64(ttl))
	if f >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(f)
}

// subtract is a − b for b ≥ 0, stopping at the smallest duration.
func subtract(a, b time.Duration) time.Duration {
	if a < math.MinInt64+b {
		return math.MinInt64
	}
	return a - b
}
