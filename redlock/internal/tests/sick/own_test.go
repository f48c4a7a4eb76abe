package sick

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
)

// Only this client has ever used the lock. The late grant of a call that has failed is no other
// holder, however many calls have ended since, and however long ago it was.
func TestAnOwnLateGrantIsNoOtherHolder(t *testing.T) {
	for name, meanwhile := range map[string]func(call func(i int)){
		"after many calls": func(call func(int)) {
			for i := range 4200 {
				call(i)
			}
		},
		"after an hour": func(call func(int)) {
			for i := range 60 {
				call(i)
				time.Sleep(time.Minute)
			}
		},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			c, servers := testkit.Client(t, 3)
			testkit.Warm(t, c)
			synctest.Wait()
			testkit.Each(servers[:2], (*embedded.Server).Stall)
			testkit.Is(t, testkit.Err(c.Mutex("x").TryLock(t.Context())), quorumlock.ErrNoQuorum, "TryLock during the stall")
			meanwhile(func(i int) { _, _ = c.Mutex(fmt.Sprint("other", i)).TryLock(t.Context()) })
			testkit.Each(servers[:2], (*embedded.Server).Resume)
			ran, err := quorumlock.Once(t.Context(), c.Mutex("x"), time.Hour, func(context.Context) error { return nil })
			if err == nil && !ran { // ErrNoQuorum is true for up to two seconds
				t.Error("the tick is skipped: another holder")
			}
			time.Sleep(30 * time.Second)
		})
	}
}
