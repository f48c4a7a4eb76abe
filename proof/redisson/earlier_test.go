package redisson_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/proof/redisson"
	"github.com/quorumlock/quorumlock/redlock"
)

// A refused Java thread sleeps until the time that it was told. So it hears when the lock ends
// earlier. Each case has the lock for 10 s, and ends it a second after Java has begun to wait.
func TestJavaHearsThatALockEndsEarlier(t *testing.T) {
	t.Parallel()
	const ttl, rest = 10 * time.Second, time.Second
	type world struct {
		*testing.T
		c, other *redlock.Client
		node     *node.Node
	}
	sleep := func() { time.Sleep(time.Second) } // Java begins to wait
	for name, run := range map[string]func(w world){
		"UnlockAfter": func(w world) {
			lease := testkit.MustLock(w, w.c.Mutex("x"))
			sleep()
			testkit.Must(w, lease.UnlockAfter(w.Context(), rest), "UnlockAfter")
		},
		"UnlockAfter of a reader": func(w world) {
			lease := testkit.MustLock(w, w.c.RWMutex("x").RLocker())
			sleep()
			testkit.Must(w, lease.UnlockAfter(w.Context(), rest), "UnlockAfter")
		},
		"a Detach that nobody attaches": func(w world) {
			lease := testkit.MustLock(w, w.c.Mutex("x"))
			sleep()
			testkit.Must(w, testkit.Err(lease.Detach(w.Context(), rest)), "Detach")
		},
		"an Attach with a shorter TTL": func(w world) {
			text, err := testkit.MustLock(w, w.c.Mutex("x")).Detach(w.Context(), ttl)
			testkit.Must(w, err, "Detach")
			sleep()
			testkit.Must(w, testkit.Err(w.other.Attach(w.Context(), text)), "Attach")
			time.Sleep(rest / 2) // the first renewal
			testkit.Must(w, w.other.Close(), "Close")
		},
		"the end of the longest share": func(w world) {
			long := testkit.MustLock(w, w.c.RWMutex("x").RLocker())
			sleep()
			testkit.MustLock(w, w.other.RWMutex("x").RLocker())
			testkit.Must(w, w.other.Close(), "Close")
			testkit.MustUnlock(w, long)
		},
		"Node.Renew": func(w world) {
			owner := quorumlock.NewOwner()
			testkit.Must(w, testkit.Err(w.node.Acquire(w.Context(), "x", owner, ttl, 1)), "Acquire")
			sleep()
			testkit.Must(w, testkit.Err(w.node.Renew(w.Context(), "x", owner, rest)), "Renew")
		},
		"Node.Acquire again": func(w world) {
			owner := quorumlock.NewOwner()
			testkit.Must(w, testkit.Err(w.node.Acquire(w.Context(), "x", owner, ttl, 1)), "Acquire")
			sleep()
			testkit.Must(w, testkit.Err(w.node.Acquire(w.Context(), "x", owner, rest, 2)), "Acquire")
		},
	} {
		for kind, of := range map[string]func(*redisson.Client) *redisson.Lock{
			"RLock":     func(c *redisson.Client) *redisson.Lock { return c.Lock("x") },
			"RFairLock": func(c *redisson.Client) *redisson.Lock { return c.FairLock("x") },
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c, servers := testkit.Client(t, 1, quorumlock.WithTTL(ttl))
					other, _ := testkit.Another(t, servers, quorumlock.WithTTL(rest))
					java := of(jvm(t, servers)[0])
					got := make(chan error, 1)
					time.AfterFunc(500*time.Millisecond, func() { _, _ = java.TryLockFor(t.Context(), rest, 0) })
					time.AfterFunc(600*time.Millisecond, func() { got <- java.OnThread(2).Lock(t.Context()) })
					_, nodes := testkit.Paths(t, servers)
					run(world{t, c, other, nodes[0]})
					shortened := time.Now()
					testkit.Must(t, <-got, "lock of the second thread")
					testkit.Took(t, shortened, rest/2, rest+10*time.Millisecond, "the second thread's wait")
				})
			})
		}
	}
}

// Go that keeps the lock for a moment after each hold leaves Java its share.
func TestJavaHasItsShareBesideUnlockAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 1)
		servers[0].Delay(100 * time.Microsecond)
		java, m := javaLockOf(jvm(t, servers), "x"), c.Mutex("x")
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
		defer stop()
		var javas, golangs int
		var both sync.WaitGroup
		both.Go(func() {
			for ctx.Err() == nil && java.Lock(ctx) == nil {
				javas++
				time.Sleep(time.Millisecond)
				java.Unlock(t.Context())
			}
		})
		both.Go(func() {
			for lease, err := m.Lock(ctx); err == nil; lease, err = m.Lock(ctx) {
				golangs++
				time.Sleep(time.Millisecond)
				testkit.OK(t, lease.UnlockAfter(t.Context(), 2*time.Millisecond), "UnlockAfter")
			}
		})
		both.Wait()
		if part := float64(javas) / float64(javas+golangs); part < 0.35 || part > 0.65 {
			t.Errorf("Java has %d of %d grants, want 35 to 65 %%", javas, javas+golangs)
		}
	})
}
