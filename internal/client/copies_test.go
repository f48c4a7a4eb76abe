package client_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/transport"
)

// copies returns two worlds over the same servers. Both clients were restored from one image.
func copies(t *testing.T) (one, two *world) {
	one = newWorld(t)
	two = &world{client: client.NewClient("test"), servers: one.servers}
	for _, s := range one.servers {
		n, err := s.Node()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close() })
		two.nodes = append(two.nodes, &hooked{Node: transport.Of(n)})
	}
	two.client.Copy(one.client)
	t.Cleanup(two.client.Close)
	return one, two
}

func TestCopiesOfAProcessExcludeEachOther(t *testing.T) {
	for name, same := range map[string]bool{"TryLock": false, "TryLock with the same number": true} {
		testkit.Run(t, name, func(t *testing.T) {
			one, two := copies(t)
			if same { // simulated clients have sequential numbers
				for _, w := range []*world{one, two} {
					w.client.Simulate(time.Now, nil, func(d time.Duration) time.Duration { return d / 2 })
				}
			}
			first := testkit.TryLock(t, one.lock(t, "x"))
			for range 3 {
				_, err := two.lock(t, "x").TryLock(t.Context())
				_, few := errors.AsType[*quorumlock.QuorumError](err)
				if err == nil || !same && (few || !errors.Is(err, quorumlock.ErrHeld)) {
					t.Errorf("TryLock of the copy: %v, want ErrHeld alone", err)
				}
				testkit.HoldsAll(t, one.servers, first) // no part of it is released
			}
			time.Sleep(time.Minute)
			testkit.Held(t, first)
			testkit.HoldsAll(t, one.servers, first)
			testkit.Unlock(t, first)
			testkit.Unlock(t, testkit.TryLock(t, two.lock(t, "x")))
			testkit.NoLocks(t, one.servers)
		})
	}
	testkit.Run(t, "Lock", func(t *testing.T) {
		one, two := copies(t)
		resource := &testkit.Resource{T: t}
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				for range 5 {
					lease := testkit.MustLock(t, []*world{one, two}[i%2].lock(t, "x"))
					resource.Enter(lease)
					time.Sleep(100 * time.Millisecond)
					resource.Leave(lease)
					testkit.MustUnlock(t, lease)
				}
			})
		}
		wg.Wait()
		testkit.NoLocks(t, one.servers)
	})
}
