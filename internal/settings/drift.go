package settings

import (
	"math"
	"time"

	"github.com/quorumlock/quorumlock/internal/errs"
)

// CheckDrift returns an error if the rate of a drift is outside [0, 1), or if the floor is negative.
func CheckDrift(rate float64, floor time.Duration) error {
	if math.IsNaN(rate) || rate < 0 || rate >= 1 {
		return errs.Misusef("quorumlock: Drift.Rate is %v: use a rate of at least 0 and below 1, such as 0.01", rate)
	}
	if floor < 0 {
		return errs.Misusef("quorumlock: Drift.Floor is %v: use 0 or more, such as 2ms", floor)
	}
	return nil
}
