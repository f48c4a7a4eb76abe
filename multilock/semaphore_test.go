package multilock_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
)

// Two semaphores of one name at different nodes are two: their slots need not be the same.
func TestSemaphoresOfOneNameAtDifferentNodes(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		d, others := testkit.Client(t, 3)
		a := testkit.Lock(t, c.Semaphore("pool", 2))
		var b *quorumlock.Lease
		for b == nil || b.Slot() == a.Slot() { // the free slots differ
			if b != nil {
				testkit.Unlock(t, b)
			}
			b = testkit.Lock(t, d.Semaphore("pool", 2))
		}
		l := testkit.TryLock(t, testkit.Multi(t, c.Semaphore("pool", 2), d.Semaphore("pool", 2)))
		if l.Slot() == a.Slot() {
			t.Errorf("slot %d is taken", l.Slot())
		}
		testkit.Refused(t, c.Semaphore("pool", 2))
		testkit.Refused(t, d.Semaphore("pool", 2))
		testkit.UnlockAll(t, l, a, b)
		testkit.Nothing(t, append(servers, others...))
	})
}

// Read A, write B, one slot of C: callers who take these in any order, beside callers of each
// alone, do not deadlock, and each part keeps its promise.
func TestMixedKindsDoNotDeadlock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		_, servers := testkit.Client(t, 3)
		const slots = 2
		var mu sync.Mutex
		readers, writers, inside := map[string]int{}, map[string]int{}, map[int]bool{}
		bad := func(name string) bool { return writers[name] > 1 || writers[name] > 0 && readers[name] > 0 }
		ctx := testkit.Within(t, testkit.Thorough(time.Second, 200*time.Millisecond))
		var running sync.WaitGroup
		orders := []string{"rws", "rws", "rs", "sw", "wr", "swr", "rws", "rws"} // reads, writes, has a slot
		turns := make([]int, len(orders))
		for i, order := range orders {
			c, _ := testkit.Another(t, servers)
			read, write := "A", "B"
			if i%2 == 1 {
				read, write = write, read
			}
			var members []quorumlock.Locker
			for _, part := range order {
				members = append(members, map[rune]quorumlock.Locker{
					'r': c.RWMutex(read).RLocker(), 'w': c.RWMutex(write), 's': c.Semaphore("C", slots),
				}[part])
			}
			l := testkit.Multi(t, members...)
			add := func(lease *quorumlock.Lease, n int) {
				mu.Lock()
				defer mu.Unlock()
				if strings.Contains(order, "r") {
					readers[read] += n
				}
				if strings.Contains(order, "w") {
					writers[write] += n
				}
				if strings.Contains(order, "s") {
					if n > 0 && inside[lease.Slot()] {
						t.Errorf("slot %d has two holders", lease.Slot())
					}
					inside[lease.Slot()] = n > 0
				}
				if bad("A") || bad("B") {
					t.Errorf("readers %v, writers %v", readers, writers)
				}
			}
			running.Go(func() {
				for ctx.Err() == nil {
					lease, err := l.Lock(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					add(lease, 1)
					time.Sleep(time.Duration(1+i) * time.Millisecond)
					add(lease, -1)
					testkit.MustUnlock(t, lease) // several may unlock at the same time
					turns[i]++
				}
			})
		}
		running.Wait()
		for i, n := range turns {
			if n < testkit.Thorough(20, 4) {
				t.Errorf("caller %d has had its turn %d times: %v", i, n, turns)
			}
		}
		testkit.Nothing(t, servers)
	})
}
