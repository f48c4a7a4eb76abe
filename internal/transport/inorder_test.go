package transport

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// An attempt waits for the one before it until that is over, its caller has an outcome, or a part
// of its own time has passed.
func TestAnAttemptWaitsForTheOneBeforeIt(t *testing.T) {
	t.Parallel()
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

// The time of an attempt ends with the caller's ctx. Callers with little time do not lose a round
// trip in the line.
func TestAnAttemptWaitsForAPartOfItsCallersTime(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		callers, want time.Duration
	}{
		"no deadline":       {0, 100 * time.Millisecond},
		"a later deadline":  {time.Hour, 100 * time.Millisecond},
		"a sooner deadline": {160 * time.Millisecond, 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				if tt.callers > 0 {
					in, cancel := context.WithTimeout(ctx, tt.callers)
					defer cancel()
					ctx = in
				}
				if got := patienceOf(ctx, 1600*time.Millisecond); got != tt.want {
					t.Errorf("it waits for %v, want %v", got, tt.want)
				}
			})
		})
	}
}
