package redisson_test

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/internal/testkit"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/proof/redisson"
)

// shared is a contest for a lock that needs all of its members.
type shared struct {
	java, golang int
	names        []string // of the members, as Redisson orders them; one if the members are nodes
	nodes        int
	delay        time.Duration
	atOnce       bool // Redisson releases the members at the same time
	first        bool // Redisson locks only the first member
	fresh        bool // no earlier locks, so no node has a token counter
	opts         []quorumlock.Option
	length       time.Duration // 4 s if 0
}

func (s shared) run(t *testing.T) (c contest) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		clients, servers := testkit.Fleet(t, s.golang, s.nodes, s.opts...)
		for i, server := range servers {
			server.Delay(s.delay + time.Duration(i)*10*time.Microsecond)
		}
		var java []javaLock
		for range s.java {
			var members []*redisson.Lock
			for _, at := range jvm(t, servers) {
				for _, name := range s.names {
					members = append(members, at.Lock(name))
				}
			}
			if s.first {
				java = append(java, single{members[0]})
				continue
			}
			all := redisson.NewMultiLock(members...)
			all.AtOnce = s.atOnce
			java = append(java, all)
		}
		var golang []quorumlock.Locker
		for _, c := range clients {
			var lock quorumlock.Locker = c.Mutex(s.names[0])
			if s.nodes == 1 {
				var members []quorumlock.Locker
				for _, name := range s.names {
					members = append(members, c.Mutex(name))
				}
				if s.atOnce {
					slices.Reverse(members) // the order is no part of the lock
				}
				var err error
				if lock, err = multilock.New(members); err != nil {
					t.Fatal(err)
				}
			}
			if !s.fresh {
				testkit.MustUnlock(t, testkit.MustLock(t, lock))
			}
			golang = append(golang, lock)
		}
		c = contend(t, java, golang, 0, time.Millisecond, 0, cmp.Or(s.length, 4*time.Second))
	})
	return c
}

// A RedissonMultiLock keeps its first member while it waits for the next. Java and Go share the
// lock, and lose little time.
func TestJavaAndGoShareAMultiLock(t *testing.T) {
	t.Parallel()
	skipRace(t)
	two, near := []string{"x", "y"}, 100*time.Microsecond
	for name, tt := range map[string]struct {
		of     shared
		grants int // of both, at least
		worst  time.Duration
	}{
		"6 and 1":           {shared{java: 6, golang: 1, names: two, nodes: 1, delay: near}, 1900, 300 * time.Millisecond},
		"6 and 6":           {shared{java: 6, golang: 6, names: two, nodes: 1, delay: near}, 2100, 400 * time.Millisecond},
		"released at once":  {shared{java: 6, golang: 1, names: two, nodes: 1, delay: near, atOnce: true}, 2100, 300 * time.Millisecond},
		"five members":      {shared{java: 6, golang: 1, names: []string{"v", "w", "x", "y", "z"}, nodes: 1, delay: 5 * near, length: 12 * time.Second}, 840, 1200 * time.Millisecond},
		"every node":        {shared{java: 6, golang: 1, names: two[:1], nodes: 3, delay: near, opts: []quorumlock.Option{quorumlock.WithQuorum(3)}}, 1300, 400 * time.Millisecond},
		"without a counter": {shared{java: 6, golang: 1, names: two, nodes: 1, delay: near, fresh: true}, 1900, 3 * time.Second},
		"the first member":  {shared{java: 6, golang: 1, names: two, nodes: 1, delay: near, first: true, fresh: true}, 1900, 300 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			c := tt.of.run(t)
			least := 0.6 * float64(tt.of.golang) / float64(tt.of.java+tt.of.golang)
			if part := float64(c.golang) / float64(c.java+c.golang); part < least || part > 0.65 {
				t.Errorf("Go has %.1f %% of the grants, want %.1f to 65", 100*part, 100*least)
			}
			if n := c.java + c.golang; n < tt.grants {
				t.Errorf("%d grants, want %d at least", n, tt.grants)
			}
			if max(c.golangWorst, c.javaWorst) > tt.worst {
				t.Errorf("the longest waits are %v and %v, want %v at most", c.javaWorst, c.golangWorst, tt.worst)
			}
		})
	}
}

// Only a lock that needs each of several cells gets one of them handed over alone: the one that
// Redisson releases first.
func TestOnlyALockOfSeveralMembersTakesTheFirstAlone(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		nodes int
		multi bool
		asks  bool // the first release comes during a further attempt
	}{
		"a mutex of one node":    {1, false, false},
		"a mutex of three nodes": {3, false, false},
		"a MultiLock":            {1, true, false},
		"a MultiLock that asks":  {1, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clients, servers := testkit.Fleet(t, 1, tt.nodes)
				var lock quorumlock.Locker = clients[0].Mutex("x")
				java := []javaLock{javaLockOf(jvm(t, servers), "x")}
				if tt.multi {
					var err error
					if lock, err = multilock.New([]quorumlock.Locker{lock, clients[0].Mutex("y")}); err != nil {
						t.Fatal(err)
					}
					java = append(java, javaLockOf(jvm(t, servers), "y"))
				}
				var mu sync.Mutex
				var asked []string
				servers[0].Before(func(r embedded.Run) {
					mu.Lock()
					defer mu.Unlock()
					if r.Script == "open" {
						asked = append(asked, r.Keys[0])
					}
				})
				last, learned := testkit.MustLock(t, lock), false
				testkit.MustUnlock(t, last)
				// Until a handover shows that the node has a token counter, the waiter tries both
				// ways.
				for range 24 {
					for _, l := range java {
						if err := l.Lock(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
					got := testkit.Waiter(t, lock)
					mu.Lock()
					asked = nil
					mu.Unlock()
					for i, l := range java {
						if tt.asks && i == 0 {
							asks := make(chan struct{})
							servers[0].After(func(embedded.Run) {
								servers[0].After(nil)
								l.Unlock(t.Context())
								time.Sleep(time.Millisecond)
								close(asks)
							})
							<-asks
						} else {
							l.Unlock(t.Context())
						}
						time.Sleep(time.Millisecond)
					}
					last = testkit.Served(t, got, last)
					mu.Lock()
					first := slices.Equal(asked, []string{"x"})
					if learned = learned || first; learned && !first || !tt.multi && asked != nil {
						t.Errorf("a node was asked to hand over %q", asked)
					}
					mu.Unlock()
					testkit.MustUnlock(t, last)
				}
				if learned != tt.multi {
					t.Errorf("a node was asked to hand over the first member: %v", learned)
				}
			})
		})
	}
}

// Redisson clients hold no slots. So a MultiLock that waits for one neither listens to the channel
// of its semaphore nor asks for a handoff there.
func TestASemaphoreInAMultiLockIsOfNoInterestToRedisson(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clients, servers := testkit.Fleet(t, 1, 1)
		lock, err := multilock.New([]quorumlock.Locker{clients[0].Mutex("x"), clients[0].Semaphore("s", 2)})
		if err != nil {
			t.Fatal(err)
		}
		servers[0].Before(func(r embedded.Run) {
			if r.Script == "open" && r.Keys[0] == "s" {
				t.Error("the open script ran for the semaphore")
			}
		})
		java := javaLockOf(jvm(t, servers), "x")
		for range 24 {
			if err := java.Lock(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := testkit.Waiter(t, lock)
			if channel := wire.UnlockChannel("s"); servers[0].Redis.PubSubNumSub(channel)[channel] > 0 {
				t.Fatal("the waiter listens to releases of the semaphore")
			}
			java.Unlock(t.Context())
			testkit.MustUnlock(t, <-got)
		}
	})
}

// A slot whose owner looks like a Redisson client refuses like any other slot.
func TestASlotOfAnOddOwner(t *testing.T) {
	for name, alone := range map[string]bool{"a semaphore": true, "a MultiLock": false} {
		testkit.Run(t, name, func(t *testing.T) {
			clients, servers := testkit.Fleet(t, 1, 1)
			redis := servers[0].Redis
			for _, key := range []string{"s", wire.SlotsKey("s")} {
				if _, err := redis.ZAdd(key, 0, "b983c153-7421-469a-addb-44fb92259a1b:1"); err != nil {
					t.Fatal(err)
				}
				redis.SetTTL(key, time.Minute)
			}
			for key, score := range map[string]float64{"quorumlock_semaphore": math.Inf(1), "b983c153-7421-469a-addb-44fb92259a1b:1": float64(time.Now().Add(time.Minute).UnixMilli())} {
				if _, err := redis.ZAdd("s", score, key); err != nil {
					t.Fatal(err)
				}
			}
			var lock quorumlock.Locker = clients[0].Semaphore("s", 1)
			if !alone {
				var err error
				if lock, err = multilock.New([]quorumlock.Locker{clients[0].Mutex("x"), lock}); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := lock.TryLock(t.Context()); !errors.Is(err, quorumlock.ErrHeld) {
				t.Errorf("%v, want ErrHeld", err)
			}
		})
	}
}
