package redisson_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/redisson"
)

// jvm returns a client of Redisson's at each server.
func jvm(t *testing.T, servers []*embedded.Server) []*redisson.Client {
	t.Helper()
	clients := make([]*redisson.Client, len(servers))
	for i, s := range servers {
		pool := redis.NewClient(&redis.Options{Addr: s.Name, Dialer: s.DialContext, MaxRetries: -1, Protocol: 2, DisableIdentity: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
		clients[i] = redisson.New(pool)
		t.Cleanup(func() {
			clients[i].Close()
			if err := pool.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return clients
}

// javaLock is the tested part of an RLock of one server, or of a RedissonRedLock of several.
type javaLock interface {
	Lock(context.Context) error
	Unlock(context.Context)
}

type single struct{ of *redisson.Lock }

func (s single) Unlock(ctx context.Context) { _ = s.of.Unlock(ctx) }

func (s single) Lock(ctx context.Context) error { return s.of.Lock(ctx) }

// polling asks each millisecond.
type polling struct{ single }

func (p polling) Lock(ctx context.Context) error {
	for {
		if won, err := p.of.TryLock(ctx); won || err != nil {
			return err
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func javaLockOf(all []*redisson.Client, name string) javaLock {
	if len(all) == 1 {
		return single{all[0].Lock(name)}
	}
	members := make([]*redisson.Lock, len(all))
	for i, c := range all {
		members[i] = c.Lock(name)
	}
	return redisson.NewRedLock(members...)
}

// contest has the number of grants and the longest wait of each side of a contended lock.
type contest struct {
	java, golang           int
	javaWorst, golangWorst time.Duration
}

func contend(t *testing.T, java []javaLock, golang []quorumlock.Locker, late, hold, pause, length time.Duration) contest {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), length)
	defer stop()
	var mu sync.Mutex
	var c contest
	inside := 0
	var wg sync.WaitGroup
	enter := func(asked time.Time, grants *int, worst *time.Duration) {
		mu.Lock()
		*grants++
		*worst = max(*worst, time.Since(asked))
		if inside++; inside > 1 {
			t.Error("two have the lock")
		}
		mu.Unlock()
		time.Sleep(hold)
		mu.Lock()
		inside--
		mu.Unlock()
	}
	run := func(late time.Duration, lock func() (unlock func(), err error), grants *int, worst *time.Duration) {
		wg.Go(func() {
			time.Sleep(late)
			for ctx.Err() == nil {
				asked := time.Now()
				unlock, err := lock()
				if err != nil {
					mu.Lock()
					*worst = max(*worst, time.Since(asked))
					mu.Unlock()
					return
				}
				enter(asked, grants, worst)
				unlock()
				time.Sleep(pause)
			}
		})
	}
	for i, l := range java {
		run(late+time.Duration(i)*137*time.Microsecond, func() (func(), error) {
			return func() { l.Unlock(context.WithoutCancel(ctx)) }, l.Lock(ctx)
		}, &c.java, &c.javaWorst)
	}
	for i, l := range golang {
		run(time.Duration(i)*139*time.Microsecond, func() (func(), error) {
			lease, err := l.Lock(ctx)
			if err != nil {
				return nil, err
			}
			return func() { testkit.MustUnlock(t, lease) }, nil
		}, &c.golang, &c.golangWorst)
	}
	wg.Wait()
	t.Logf("Java %d, Go %d; longest waits %v and %v", c.java, c.golang, c.javaWorst, c.golangWorst)
	return c
}

// skipRace skips a long contest under the race detector. Shorter tests cover its concurrency.
func skipRace(t *testing.T) {
	t.Helper()
	if testkit.Race {
		t.Skip("the race detector makes it take minutes")
	}
}

func TestJavaAndGoShareALock(t *testing.T) {
	t.Parallel()
	skipRace(t)
	for _, tt := range []struct {
		name         string
		java, golang int
		nodes        int
		hold, pause  time.Duration
		opts         []quorumlock.Option
	}{
		{"1 and 1", 1, 1, 1, 5 * time.Millisecond, 5 * time.Millisecond, nil},
		{"1 and 1 at once", 1, 1, 1, time.Millisecond, 0, nil},
		{"6 and 6", 6, 6, 1, time.Millisecond, 0, nil},
		{"6 and 6 for long", 6, 6, 1, 10 * time.Millisecond, 0, nil},
		// Without renewal nothing is handed over.
		{"6 and 2 that are called", 6, 2, 1, time.Millisecond, 0, []quorumlock.Option{quorumlock.WithoutRenewal()}},
		{"RedLock", 2, 2, 3, 5 * time.Millisecond, 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clients, servers := testkit.Fleet(t, tt.golang, tt.nodes, tt.opts...)
				for i, s := range servers {
					s.Delay(100*time.Microsecond + time.Duration(i)*10*time.Microsecond)
				}
				var java []javaLock
				var golang []quorumlock.Locker
				for range tt.java {
					java = append(java, javaLockOf(jvm(t, servers), "x"))
				}
				for _, c := range clients {
					golang = append(golang, c.Mutex("x"))
				}
				c := contend(t, java, golang, 0, tt.hold, tt.pause, 4*time.Second)
				if part := float64(c.golang) / float64(c.java+c.golang); part < 0.35 || part > 0.65 {
					t.Errorf("Go has %.0f %% of the grants, want 35 to 65", 100*part)
				}
				if most := 3 * time.Second; c.javaWorst > most || c.golangWorst > most {
					t.Errorf("somebody waited for more than %v", most)
				}
			})
		})
	}
}

// A client that polls, spins or has its own queue is never notified of a free lock. While Go
// clients hand the lock over, it is never free.
func TestJavaClientsThatDoNotListenAreNotStarved(t *testing.T) {
	t.Parallel()
	skipRace(t)
	for name, tt := range map[string]struct {
		lock  func(c *redisson.Client) javaLock
		least float64
		worst time.Duration
	}{
		"tryLock each ms": {func(c *redisson.Client) javaLock { return polling{single{c.Lock("x")}} }, 0.05, 5 * time.Second},
		// 10 s on average.
		"RSpinLock": {func(c *redisson.Client) javaLock { return single{c.SpinLock("x")} }, 0.0001, 150 * time.Second},
		"RFairLock": {func(c *redisson.Client) javaLock { return single{c.FairLock("x")} }, 0.01, 5 * time.Second},
	} {
		if tt.worst > testkit.Thorough(time.Hour, time.Minute) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clients, servers := testkit.Fleet(t, 4, 1)
				servers[0].Delay(100 * time.Microsecond)
				var golang []quorumlock.Locker
				for _, c := range clients {
					golang = append(golang, c.Mutex("x"))
				}
				length := max(10*time.Second, 11*tt.worst/10)
				hold := 2 * time.Millisecond
				if length > time.Minute {
					hold *= 25 // so that less happens
				}
				c := contend(t, []javaLock{tt.lock(jvm(t, servers)[0])}, golang, 500*time.Millisecond, hold, 0, length)
				if part := float64(c.java) / float64(c.java+c.golang); part < tt.least {
					t.Errorf("Java has %.2f %% of the grants, want %.2f at least", 100*part, 100*tt.least)
				}
				if c.javaWorst > tt.worst {
					t.Errorf("Java waited for %v, want %v at most", c.javaWorst, tt.worst)
				}
				if most := 5 * time.Second; c.golangWorst > most {
					t.Errorf("Go waited for %v, want %v at most", c.golangWorst, most)
				}
			})
		})
	}
}

// A waiter hears of a Java client's release at once, also if the waiter before it has gone.
func TestReleaseByRedissonIsNoticed(t *testing.T) {
	t.Parallel()
	for name, leaves := range map[string]bool{"by the first waiter": false, "by the second, when the first has gone": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := testkit.Fleet(t, 2, 3)
				java := javaLockOf(jvm(t, servers), "x")
				if err := java.Lock(t.Context()); err != nil {
					t.Fatal(err)
				}
				if leaves {
					ctx, cancel := context.WithTimeout(t.Context(), 90*time.Millisecond)
					defer cancel()
					go func() { _, _ = c[0].Mutex("x").Lock(ctx) }()
					time.Sleep(5 * time.Millisecond)
				}
				got := make(chan *quorumlock.Lease)
				go func() { got <- testkit.MustLock(t, c[1].Mutex("x")) }()
				// If the first waiter leaves, the second notices by itself after a while.
				if time.Sleep(200 * time.Millisecond); !leaves {
					time.Sleep(5 * time.Second)
				}
				released := time.Now()
				java.Unlock(t.Context())
				lease := <-got
				if d := time.Since(released); d > 20*time.Millisecond {
					t.Errorf("served %v after the release", d)
				}
				testkit.MustUnlock(t, lease)
				testkit.NoLocks(t, servers)
			})
		})
	}
}

// Without Redisson's clients, no Go client listens to their channel. After one was seen, it does
// for a while.
func TestOnlyThoseWhoMeetRedissonListenToIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, servers := testkit.Fleet(t, 2, 1)
		listeners := func() int {
			return servers[0].Redis.PubSubNumSub(wire.UnlockChannel("x"))[wire.UnlockChannel("x")]
		}
		lease := testkit.MustLock(t, c[0].Mutex("x"))
		got := testkit.Waiter(t, c[1].Mutex("x"))
		if n := listeners(); n != 0 {
			t.Errorf("%d listen to Redisson's channel, and nobody has met it", n)
		}
		testkit.MustUnlock(t, lease)
		testkit.MustUnlock(t, testkit.Served(t, got, lease))

		java := javaLockOf(jvm(t, servers), "x")
		if err := java.Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		got = testkit.Waiter(t, c[1].Mutex("x"))
		if n := listeners(); n != 1 {
			t.Errorf("%d listen to Redisson's channel while Java has the lock", n)
		}
		java.Unlock(t.Context())
		testkit.MustUnlock(t, testkit.Served(t, got, lease))
		time.Sleep(9 * time.Second)
		if n := listeners(); n != 1 {
			t.Errorf("%d listen 9 s after Java has left", n)
		}
		time.Sleep(2 * time.Second)
		if n := listeners(); n != 0 {
			t.Errorf("%d listen 11 s after Java has left", n)
		}
	})
}

// A waiter whose wait has begun may learn of a Java client from a late answer. It listens from then
// on.
func TestAWaiterThatMeetsRedissonLateListens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, servers := testkit.Fleet(t, 2, 3)
		lease := testkit.MustLock(t, c[0].Mutex("x"))
		got := testkit.Waiter(t, c[1].Mutex("x")) // its client is subscribed from now on
		testkit.MustUnlock(t, lease)
		testkit.MustUnlock(t, testkit.Served(t, got, lease))
		time.Sleep(time.Millisecond) // all nodes are free: nobody but the last waiter meets Java in its wait

		java := javaLockOf(jvm(t, servers[2:]), "x")
		if err := java.Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		lease = testkit.MustLock(t, c[0].Mutex("x"))
		servers[2].Delay(30 * time.Millisecond)
		got = testkit.Waiter(t, c[1].Mutex("x"))
		time.Sleep(100 * time.Millisecond)
		servers[2].Delay(0)
		time.Sleep(100 * time.Millisecond)
		if n := servers[2].Redis.PubSubNumSub(wire.UnlockChannel("x"))[wire.UnlockChannel("x")]; n != 1 {
			t.Errorf("%d listen to Redisson's channel, want 1", n)
		}
		java.Unlock(t.Context())
		testkit.MustUnlock(t, lease)
		testkit.MustUnlock(t, testkit.Served(t, got, lease))
	})
}

// A release by Redisson may arrive before the refusal that its hold caused.
func TestAnAttemptHearsAReleaseByRedisson(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, servers := testkit.Fleet(t, 1, 1)
		java := javaLockOf(jvm(t, servers), "x")
		hold := func() {
			if err := java.Lock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		hold()
		got := testkit.Waiter(t, c[0].Mutex("x")) // subscribes
		time.Sleep(time.Second)
		java.Unlock(t.Context())
		testkit.MustUnlock(t, <-got)
		hold()
		servers[0].After(func(embedded.Run) {
			servers[0].After(nil)
			java.Unlock(t.Context())
			time.Sleep(time.Millisecond)
		})
		began := time.Now()
		testkit.MustUnlock(t, testkit.MustLock(t, c[0].Mutex("x")))
		testkit.Took(t, began, 0, 100*time.Millisecond, "Lock")
	})
}

// A thread that waits for Redisson's fair lock hears a release of a Go client that has seen no
// peer.
func TestAFairLockHearsAReleaseOfAGoClientThatHasNotMetIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, servers := testkit.Fleet(t, 1, 1)
		java := jvm(t, servers)[0].FairLock("x")
		lease := testkit.MustLock(t, c[0].Mutex("x"))
		got := make(chan error, 1)
		go func() { got <- java.Lock(t.Context()) }()
		time.Sleep(time.Second)
		began := time.Now()
		testkit.MustUnlock(t, lease)
		if err := <-got; err != nil || time.Since(began) > time.Second {
			t.Errorf("Java has the lock after %v: %v", time.Since(began), err)
		}
		if err := java.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Redisson's fenced lock does not extend the TTL of the counter, so the counter of a shared lock
// must last by itself.
func TestFencingTokensOutliveDaysOfJavaAlone(t *testing.T) {
	t.Parallel()
	t.Run("a counter that Java made", func(t *testing.T) { tokensOutliveDaysOfJavaAlone(t, false) })
	t.Run("a counter that Go made", func(t *testing.T) { tokensOutliveDaysOfJavaAlone(t, true) })
}

func tokensOutliveDaysOfJavaAlone(t *testing.T, goIsFirst bool) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := testkit.Fleet(t, 2, 1)
		java := jvm(t, servers)[0].FencedLock("x")
		if goIsFirst {
			testkit.MustUnlock(t, testkit.MustLock(t, c[1].Mutex("x")))
		}
		if err := java.Lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := testkit.Waiter(t, c[0].Mutex("x"))
		if err := java.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		lease := <-got
		testkit.MustUnlock(t, lease)
		time.Sleep(5 * time.Hour)
		lease = testkit.MustLock(t, c[1].Mutex("x")) // this client has seen no peer lately
		testkit.MustUnlock(t, lease)
		last := lease.Token()
		for range 10 {
			time.Sleep(24 * time.Hour)
			if err := java.Lock(t.Context()); err != nil {
				t.Fatal(err)
			}
			token, err := java.Token(t.Context())
			if err != nil || token <= last {
				t.Fatalf("Java's token is %d after %d: %v", token, last, err)
			}
			last = token
			if err := java.Unlock(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if lease := testkit.MustLock(t, c[1].Mutex("x")); lease.Token() <= last {
			t.Errorf("Go's token is %d after Java's %d", lease.Token(), last)
		} else {
			testkit.MustUnlock(t, lease)
		}
	})
}
