package transport

import (
	"testing"
	"testing/synctest"
	"time"
)

// An attempt waits for the one before it until that is over, its caller has an outcome, or a part
// of its own time has passed.
func TestAnAttemptWaitsForTheOneBeforeIt(t *testing.T) {
	const limit = 100 * time.Millisecond
	for name, tt := range map[string]struct {
		over, decided, want time.Duration
	}{
		"it is over":         {10 * time.Millisecond, time.Hour, 10 * time.Millisecond},
		"it is decided":      {time.Hour, 20 * time.Millisecond, 20 * time.Millisecond},
		"its node is silent": {time.Hour, time.Hour, limit},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				over, decided, began := make(chan struct{}), make(chan struct{}), time.Now()
				time.AfterFunc(tt.over, func() { close(over) })
				time.AfterFunc(tt.decided, func() { close(decided) })
				(&attempt{over: over, decided: decided}).wait(limit)
				if got := time.Since(began); got != tt.want {
					t.Errorf("it waits for %v, want %v", got, tt.want)
				}
			})
		})
	}
}
