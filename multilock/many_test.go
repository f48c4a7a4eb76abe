package multilock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/redlock"
)

// What a node is asked to renew comes in pipelines of five hundred. A MultiLock whose two keys there are in two
// of them is renewed although the key in the first is gone: it is not waited for before the second is asked for.
func TestKeyGoneIsTakenBackWhenTheRenewalTakesSeveralPipelines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, nodes := locktest.Nodes(t, 3)
		several, err := redlock.New(nodes)
		if err != nil {
			t.Fatal(err)
		}
		defer several.Close() //nolint:errcheck // the test ends
		single, err := redlock.New(nodes[:1])
		if err != nil {
			t.Fatal(err)
		}
		defer single.Close() //nolint:errcheck // as above
		for i := range 498 {
			if _, err := single.Mutex(fmt.Sprint("single-", i)).TryLock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Millisecond) // the next is renewed with them, and behind them
		lease := locktest.TryLock(t, all(t, single.Mutex("499"), several.Mutex("500"), nodes[0].Mutex("501")))
		deadline := lease.ValidUntil()
		servers[0].Redis.Del("500")
		time.Sleep(quorumlock.DefaultTTL / 2)
		locktest.Held(t, lease)
		if !lease.ValidUntil().After(deadline) {
			t.Error("the lease was not renewed")
		}
		if !servers[0].Redis.Exists("500") {
			t.Error("the key was not taken back")
		}
		locktest.Unlock(t, lease)
	})
}
