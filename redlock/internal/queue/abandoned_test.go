package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
)

// The first waiter of a free lock is dead. Until its entry has ended, a TryLock is refused soon: no
// live waiter takes so long.
func TestATryLockBehindADeadWaiterIsRefusedSoon(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		clients, servers := locktest.Fleet(t, 2, 3)
		dead, paths := locktest.Another(t, servers)
		lease := locktest.Lock(t, clients[0].Mutex("x"))
		ctx, stop := context.WithCancel(t.Context())
		ended := locktest.Go(func() error { return locktest.Err(dead.Mutex("x").Lock(ctx)) })
		time.Sleep(time.Second)
		locktest.Kill(paths...)
		time.Sleep(time.Second) // too long since its refresh: nothing is handed to it
		locktest.Unlock(t, lease)
		refused, began := 0, time.Now()
		for {
			start := time.Now()
			lease, err := clients[1].Mutex("x").TryLock(t.Context())
			locktest.Took(t, start, 0, 50*time.Millisecond, "TryLock")
			if err == nil {
				locktest.Unlock(t, lease)
				break
			}
			if refused++; !errors.Is(err, quorumlock.ErrHeld) {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		locktest.Took(t, began, 0, 2*time.Second, "TryLock, with all refusals")
		locktest.Equal(t, refused > 0, true, "a TryLock met the dead waiter")
		stop()
		<-ended
		locktest.Restart(paths...)
		time.Sleep(2 * time.Second)
		locktest.Nothing(t, servers)
	})
}
