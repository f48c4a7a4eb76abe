package hold

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
)

// A process that waits longer than the lock is kept would run a job again that has succeeded.
func TestOnceRefusesAStandbyThatOutlastsTheKeptTime(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, _ := locktest.Client(t, 3)
		for every, opts := range map[time.Duration][]quorumlock.OnceOption{
			24 * time.Hour: {quorumlock.KeepFor(time.Minute), quorumlock.Standby(time.Minute)},
			time.Hour:      {quorumlock.Standby(54 * time.Minute)},
			0:              {quorumlock.Standby(time.Second)},
		} {
			ran, err := quorumlock.Once(t.Context(), c.Mutex("x"), every, func(context.Context) error { return nil }, opts...)
			if ran || !errors.Is(err, quorumlock.ErrMisuse) {
				t.Errorf("period %v: ran %v, %v, want ErrMisuse", every, ran, err)
			}
		}
	})
}
