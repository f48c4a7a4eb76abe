package kinds

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/redlock"
)

// inspects checks the owner and the data that a client finds, at a quorum and at each node.
func inspects(t *testing.T, c *redlock.Client, owner quorumlock.Owner, data string) {
	t.Helper()
	in, err := c.Inspect(t.Context(), "x")
	if err != nil || in.State.Owner != owner || in.State.Data != data {
		t.Errorf("Inspect: owner %s, data %q, %v; want %s, %q", in.State.Owner, in.State.Data, err, owner, data)
	}
	for _, n := range in.Nodes {
		if n.State.Data != data {
			t.Errorf("%s: data %q, want %q", n.Node, n.State.Data, data)
		}
	}
}

// refusal is the *HeldError of a call.
func refusal(t *testing.T, err error) *quorumlock.HeldError {
	t.Helper()
	held, ok := errors.AsType[*quorumlock.HeldError](err)
	if !ok {
		t.Fatalf("%v, want a *HeldError", err)
	}
	return held
}

// withData is the lock x with data.
func withData(c *redlock.Client, data string, opts ...quorumlock.Option) *redlock.Mutex {
	return c.Mutex("x", append(opts, quorumlock.WithData(data))...)
}

// ran returns the number of scripts that the servers have run.
func ran(servers []*embedded.Server) (n int) {
	for _, s := range servers {
		n += s.Ran()
	}
	return n
}

func TestOthersSeeTheDataOfAHold(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		other, _ := testkit.Another(t, servers)
		testkit.Warm(t, other)
		lease := testkit.Lock(t, withData(c, "job 17"))
		inspects(t, other, lease.Owner(), "job 17")
		_, nodes := testkit.Paths(t, servers[:1])
		if s, err := nodes[0].Inspect(t.Context(), "x"); err != nil || s.Data != "job 17" {
			t.Errorf("Inspect of a node: %q, %v", s.Data, err)
		}

		before := ran(servers)
		held := refusal(t, testkit.Err(other.Mutex("x").TryLock(t.Context())))
		synctest.Wait()
		plain := ran(servers) - before
		testkit.Equal(t, held.Data, "", "the data for a caller without the option")
		before = ran(servers)
		held = refusal(t, testkit.Err(withData(other, "job 18").TryLock(t.Context())))
		synctest.Wait()
		testkit.Equal(t, held.Data, "job 17", "the data for a caller with data")
		if !strings.Contains(held.Error(), `("job 17")`) {
			t.Errorf("%q does not say the data", held)
		}
		testkit.Equal(t, ran(servers)-before, plain+len(servers), "scripts of a refusal with data")
		held = refusal(t, testkit.Err(withData(other, "job 18", quorumlock.WithWait(time.Second)).Lock(t.Context())))
		testkit.Equal(t, held.Data, "job 17", "the data after WithWait")
		held = refusal(t, testkit.Err(withData(c, "job 18").TryLock(t.Context())))
		if held.Data != "job 17" || !held.Own {
			t.Errorf("for the client of the holder: %q, own %v", held.Data, held.Own)
		}
		testkit.Unlock(t, lease)
		inspects(t, other, "", "")
	})
}

// A caller whose ctx has ended does not wait for the data.
func TestTheEndOfACallDoesNotWaitForData(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		other, paths := testkit.Another(t, servers)
		testkit.Lock(t, withData(c, "job 17"))
		time.AfterFunc(900*time.Millisecond, func() { testkit.Each(paths, (*embedded.Server).Mute) })
		began := time.Now()
		_, err := withData(other, "job 18").Lock(testkit.Within(t, time.Second))
		testkit.Is(t, err, context.DeadlineExceeded, "Lock")
		testkit.Took(t, began, time.Second, time.Second, "Lock")
		testkit.Each(paths, (*embedded.Server).Resume)
		time.Sleep(time.Second)
	})
}

// A node that has no data delays a refusal no longer than a quorum takes to answer.
func TestARefusalByAHolderWithoutData(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		other, paths := testkit.Another(t, servers)
		testkit.Warm(t, other)
		testkit.Lock(t, c.Mutex("x"))
		paths[2].Mute()
		began := time.Now()
		held := refusal(t, testkit.Err(withData(other, "job 18").TryLock(t.Context())))
		testkit.Equal(t, held.Data, "", "the data")
		testkit.Took(t, began, 0, 100*time.Millisecond, "TryLock")
		paths[2].Resume()
		time.Sleep(time.Second)
	})
}

// The data lasts as long as the hold, and comes to nodes that lack it.
func TestDataIsKeptWithTheHold(t *testing.T) {
	for name, tt := range map[string]struct {
		opts []quorumlock.Option
		hold func(t *testing.T, lease *quorumlock.Lease)
	}{
		"renewed": {nil, func(t *testing.T, _ *quorumlock.Lease) { time.Sleep(5 * time.Minute) }},
		"extended for long": {[]quorumlock.Option{quorumlock.WithoutRenewal()}, func(t *testing.T, lease *quorumlock.Lease) {
			testkit.Must(t, lease.ExtendTo(t.Context(), 2*time.Minute), "ExtendTo")
			time.Sleep(time.Minute)
		}},
		"extended for long, and renewed": {nil, func(t *testing.T, lease *quorumlock.Lease) {
			testkit.Must(t, lease.ExtendTo(t.Context(), 2*time.Minute), "ExtendTo")
			time.Sleep(time.Minute)
		}},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			c, servers := testkit.Client(t, 3)
			lease := testkit.Lock(t, withData(c, "job 17", tt.opts...))
			tt.hold(t, lease)
			inspects(t, c, lease.Owner(), "job 17")
			servers[0].Redis.Del(wire.LeaderKey("x")) // the data
			servers[1].Redis.FlushAll()               // and the lock
			if len(tt.opts) == 0 {                    // one renewal restores the lock where it is missing, and the next the data
				time.Sleep(quorumlock.DefaultTTL)
			} else {
				for range 2 {
					testkit.Must(t, lease.Extend(t.Context()), "Extend")
					time.Sleep(time.Second)
				}
			}
			inspects(t, c, lease.Owner(), "job 17")
			for _, s := range servers {
				if lock, data := s.Redis.TTL("x"), s.Redis.TTL(wire.LeaderKey("x")); data < lock-20*time.Millisecond { // renewals wait that long for others
					t.Errorf("%s keeps the lock for %v, and the data for %v", s.Name, lock, data)
				}
			}
			testkit.Unlock(t, lease)
			testkit.Nothing(t, servers)
		})
	}
}

func TestUnlockAfterKeepsTheData(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		lease := testkit.Lock(t, withData(c, "job 17"))
		time.Sleep(5 * time.Second)
		testkit.Must(t, lease.UnlockAfter(t.Context(), time.Minute), "UnlockAfter")
		time.Sleep(59 * time.Second)
		inspects(t, c, lease.Owner(), "job 17")
		testkit.Equal(t, refusal(t, testkit.Err(withData(c, "job 18").TryLock(t.Context()))).Data, "job 17", "the data")
		time.Sleep(2 * time.Second)
		inspects(t, c, "", "")
		testkit.Nothing(t, servers)
	})
}

// A detached hold has no data until a process has attached it.
func TestTheDataOfAnAttachedHold(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		other, _ := testkit.Another(t, servers)
		lease := testkit.Lock(t, withData(c, "request"))
		text, err := lease.Detach(t.Context(), time.Minute)
		testkit.Must(t, err, "Detach")
		synctest.Wait()
		in, err := c.Inspect(t.Context(), "x")
		if err != nil || in.State.Owner == "" || in.State.Data != "" {
			t.Errorf("a detached hold: %+v, %v", in.State, err)
		}
		lease, err = other.Attach(t.Context(), text, quorumlock.WithData("worker"))
		testkit.Must(t, err, "Attach")
		synctest.Wait()
		inspects(t, c, lease.Owner(), "worker")
		testkit.Unlock(t, lease)
	})
}

// The late writes of a former holder reach a node when another has the lock.
func TestDataOfAFormerHolderIsNotShown(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, _ *redlock.Client, servers []*embedded.Server) {
		former, paths := testkit.Another(t, servers)
		next, _ := testkit.Another(t, servers)
		testkit.Warm(t, former)
		paths[2].Stall()
		lease := testkit.MustLock(t, withData(former, "former"))
		waiter := testkit.Waiter(t, withData(next, "next"))
		testkit.MustUnlock(t, lease)
		lease = <-waiter
		synctest.Wait()
		inspects(t, next, lease.Owner(), "next")
		paths[2].Resume()
		time.Sleep(time.Second)
		inspects(t, next, lease.Owner(), "next")
		testkit.Unlock(t, lease)
		time.Sleep(3 * time.Second)
	})
}

// A hold that is handed over has the data of its new holder.
func TestDataFollowsAHandoff(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		other, _ := testkit.Another(t, servers)
		lease := testkit.Lock(t, withData(c, "first"))
		second, third := testkit.Waiter(t, withData(other, "second")), testkit.Waiter(t, other.Mutex("x"))
		testkit.Unlock(t, lease)
		lease = <-second
		time.Sleep(time.Second) // a node that hands over after the others gets the data with a renewal
		inspects(t, c, lease.Owner(), "second")
		testkit.Unlock(t, lease)
		lease = <-third
		synctest.Wait()
		inspects(t, c, lease.Owner(), "")
		testkit.Unlock(t, lease)
	})
}

// The data of a dead holder ends with its lock. It is not shown with the next holder, even if the
// key of the data lasts longer.
func TestTheDataOfALostHold(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		_, servers := testkit.Client(t, 3)
		dies, paths := testkit.Another(t, servers)
		c, _ := testkit.Another(t, servers)
		lost := testkit.Lock(t, withData(dies, "job 17"))
		time.Sleep(time.Minute)
		testkit.Kill(paths...)
		time.Sleep(time.Second)
		inspects(t, c, lost.Owner(), "job 17")
		testkit.Each(servers, func(s *embedded.Server) { s.Redis.SetTTL(wire.LeaderKey("x"), time.Hour) })
		lease := testkit.Lock(t, c.Mutex("x"))
		testkit.Lost(t, lost, 0)
		time.Sleep(time.Second) // the former holder's keys end a few ms later at some nodes
		inspects(t, c, lease.Owner(), "")
		testkit.Unlock(t, lease)
		lease = testkit.Lock(t, withData(c, "job 18"))
		inspects(t, c, lease.Owner(), "job 18")
		testkit.Unlock(t, lease)
		testkit.Nothing(t, servers)
	})
}

// Only the writer of an RWMutex has data, until a Downgrade.
func TestTheDataOfAWriter(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		rw := c.RWMutex("x", quorumlock.WithData("job 17"))
		lease := testkit.Lock(t, rw)
		inspects(t, c, lease.Owner(), "job 17")
		testkit.Must(t, rw.Downgrade(t.Context(), lease), "Downgrade")
		inspects(t, c, "", "")
		testkit.Unlock(t, lease)
		lease = testkit.Lock(t, rw.RLocker())
		inspects(t, c, "", "")
		for _, s := range servers {
			if s.Redis.Exists(wire.LeaderKey("x")) {
				t.Errorf("%s has data of a reader", s.Name)
			}
		}
		testkit.Unlock(t, lease)
	})
}

// A node that refuses the data keeps the lock. The client logs the first refusal.
func TestRefusedDataIsLoggedOnce(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		log, logger := testkit.Logger()
		c, servers := testkit.Client(t, 3, logger)
		for _, s := range servers {
			testkit.Must(t, s.Redis.Set(wire.LeaderKey("x"), "mine"), "Set")
		}
		for range 3 {
			lease := testkit.Lock(t, withData(c, "job 17"))
			time.Sleep(quorumlock.DefaultTTL)
			testkit.Held(t, lease)
			inspects(t, c, lease.Owner(), "")
			testkit.Equal(t, refusal(t, testkit.Err(withData(c, "job 18").TryLock(t.Context()))).Data, "", "the data")
			testkit.Unlock(t, lease)
		}
		if lines := log.Lines("refuses the data", wire.LeaderKey("x")); len(lines) != 1 || len(log.Lines()) != 1 {
			t.Errorf("the log has %q", log.Lines())
		}
		for _, s := range servers {
			if got, err := s.Redis.Get(wire.LeaderKey("x")); got != "mine" || err != nil {
				t.Errorf("the value of another program is %q, %v", got, err)
			}
		}
	})
}
