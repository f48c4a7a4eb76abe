package queue

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
)

// The first waiter of a free lock is dead. Until its entry has ended, a TryLock is refused soon: no
// live waiter takes so long.
func TestATryLockBehindADeadWaiterIsRefusedSoon(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		clients, servers := testkit.Fleet(t, 2, 3)
		dead, paths := testkit.Another(t, servers)
		lease := testkit.Lock(t, clients[0].Mutex("x"))
		ctx, stop := context.WithCancel(t.Context())
		ended := testkit.Go(func() error { return testkit.Err(dead.Mutex("x").Lock(ctx)) })
		time.Sleep(time.Second)
		testkit.Kill(paths...)
		time.Sleep(time.Second) // too long since its refresh: nothing is handed to it
		testkit.Unlock(t, lease)
		refused, began := 0, time.Now()
		for {
			start := time.Now()
			lease, err := clients[1].Mutex("x").TryLock(t.Context())
			testkit.Took(t, start, 0, 50*time.Millisecond, "TryLock")
			if err == nil {
				testkit.Unlock(t, lease)
				break
			}
			if refused++; !errors.Is(err, quorumlock.ErrHeld) {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		testkit.Took(t, began, 0, 2*time.Second, "TryLock, with all refusals")
		testkit.Equal(t, refused > 0, true, "a TryLock met the dead waiter")
		stop()
		<-ended
		testkit.Restart(paths...)
		time.Sleep(2 * time.Second)
		testkit.Nothing(t, servers)
	})
}
