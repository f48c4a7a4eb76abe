package redlock_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// oneRunEach checks that a script ran once at each server.
func oneRunEach(t *testing.T, servers []*embedded.Server, script string) {
	t.Helper()
	for _, s := range servers {
		if n := s.Ran(script); n != 1 {
			t.Errorf("%s ran %d times at %s, want once", script, n, s.Name)
		}
	}
}

// The reply to an acquire is lost after the script ran. A minority of these costs nothing; of more the
// caller is told, and what was granted without its knowledge is undone.
func TestReplyToAcquireLostIsAppliedOnceAndUndone(t *testing.T) {
	for lost := range 6 {
		t.Run(fmt.Sprintf("at %d of 5", lost), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 5)
				locktest.Each(servers[:lost], func(s *embedded.Server) { s.LoseReplies(1) })
				lease, err := c.Mutex("x").TryLock(t.Context())
				if lost <= 2 {
					if err != nil {
						t.Fatal(err)
					}
					locktest.HoldsAll(t, servers, lease)
					for i, s := range servers {
						if n := s.Redis.HGet("x", string(wire.OfCell(lease.Owner(), i))); n != "1" {
							t.Errorf("the hold count at %s is %s, want 1", s.Name, n)
						}
					}
					time.Sleep(2 * quorumlock.DefaultTTL)
					oneRunEach(t, servers, "acquire")
					locktest.Unlock(t, lease)
				} else {
					q, ok := errors.AsType[*quorumlock.QuorumError](err)
					if !ok || q.Granted > 5-lost || q.Needed != 3 || len(q.Nodes) < 3 || errors.Is(err, quorumlock.ErrHeld) {
						t.Fatalf("TryLock: %v, want a QuorumError with 3 nodes and %d grants at most", err, 5-lost)
					}
					locktest.NoLocks(t, servers)
					oneRunEach(t, servers, "acquire")
				}
				locktest.Nothing(t, servers)
			})
		})
	}
}

func TestReplyToRaiseLostIsAppliedOnceAndUndone(t *testing.T) {
	for lost := range 5 {
		t.Run(fmt.Sprintf("at %d of 5", lost), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 5)
				setCounters(t, servers, "x", ahead(10), ahead(20), ahead(30), ahead(40), ahead(50))
				for _, s := range servers[:lost] {
					s.Before(func(r embedded.Run) {
						if r.Script == "raise" {
							s.LoseReplies(1)
						}
					})
				}
				lease, err := c.Mutex("x").TryLock(t.Context()) // in its next attempt, if need be
				if err != nil {
					t.Fatal(err)
				}
				if n := atLeast(t, servers, "x", lease.Token()); n < 3 {
					t.Errorf("%d nodes count on from the token, want 3", n)
				}
				locktest.Unlock(t, lease)
				locktest.Nothing(t, servers)
				attempts := servers[4].Ran("acquire")
				for _, s := range servers {
					if n := s.Ran("raise"); n > attempts {
						t.Errorf("raise ran %d times at %s in %d attempts", n, s.Name, attempts)
					}
					if n := s.Ran("acquire"); n != attempts {
						t.Errorf("acquire ran %d times at %s in %d attempts", n, s.Name, attempts)
					}
				}
			})
		})
	}
}

// A renewal whose replies are lost is tried again, and the lease lasts.
func TestReplyToRenewLostIsTriedAgain(t *testing.T) {
	for lost := range 6 {
		t.Run(fmt.Sprintf("at %d of 5", lost), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 5)
				lease := locktest.Lock(t, c.Mutex("x"))
				for range 4 {
					synctest.Wait()
					locktest.Each(servers[:lost], func(s *embedded.Server) { s.LoseReplies(1) })
					time.Sleep(quorumlock.DefaultTTL / 2)
				}
				locktest.Held(t, lease)
				locktest.Each(servers, func(s *embedded.Server) { s.LoseReplies(0) })
				oneRunEach(t, servers, "acquire")
				for i, s := range servers {
					if n := s.Redis.HGet("x", string(wire.OfCell(lease.Owner(), i))); n != "1" {
						t.Errorf("the hold count at %s is %s, want 1", s.Name, n)
					}
				}
				locktest.Unlock(t, lease)
				locktest.Nothing(t, servers)
			})
		})
	}
}

// A release whose replies are lost has released; the caller hears that it is not confirmed.
func TestReplyToReleaseLostIsAppliedOnce(t *testing.T) {
	for lost := range 6 {
		t.Run(fmt.Sprintf("at %d of 5", lost), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 5)
				other, _ := locktest.Another(t, servers)
				lease := locktest.Lock(t, c.Mutex("x"))
				locktest.Each(servers[:lost], func(s *embedded.Server) { s.LoseReplies(1) })
				err := lease.Unlock(t.Context())
				q, isQuorum := errors.AsType[*quorumlock.QuorumError](err)
				switch {
				case lost <= 2 && err != nil:
					t.Errorf("Unlock: %v, want no error", err)
				case lost > 2 && (!isQuorum || len(q.Nodes) < 3 || errors.Is(err, quorumlock.ErrLost)):
					t.Errorf("Unlock: %v, want a QuorumError that names 3 nodes", err)
				}
				synctest.Wait()
				oneRunEach(t, servers, "release")
				locktest.Each(servers, func(s *embedded.Server) { s.LoseReplies(0) })
				locktest.Unlock(t, locktest.TryLock(t, other.Mutex("x")))
				locktest.Nothing(t, servers)
			})
		})
	}
}

// late holds back a script at a server for some time, on its connection only.
func late(s *embedded.Server, script string, by time.Duration) {
	s.Before(func(r embedded.Run) {
		if r.Script == script {
			time.Sleep(by)
		}
	})
}

// An acquire reaches a node after the release has: it is undone as soon as it answers.
func TestLateAcquireAfterReleaseLeavesNoKey(t *testing.T) {
	for _, stragglers := range []int{1, 2} {
		t.Run(fmt.Sprint(stragglers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 5)
				warm(t, c)
				locktest.Each(servers[:stragglers], func(s *embedded.Server) { late(s, "acquire", 300*time.Millisecond) })
				lease := locktest.TryLock(t, c.Mutex("x"))
				locktest.Unlock(t, lease)
				for _, s := range servers[:stragglers] {
					if s.Ran("acquire") != 1 {
						t.Fatal("the acquire was not late: this test shows nothing")
					}
				}
				locktest.NoLocks(t, servers)
				time.Sleep(400 * time.Millisecond)
				for _, s := range servers[:stragglers] {
					if s.Ran("acquire") != 2 || s.Ran("release") != 2 { // each once by warm
						t.Errorf("%s ran %d acquires and %d releases, want 2 of each", s.Name, s.Ran("acquire"), s.Ran("release"))
					}
				}
				locktest.Nothing(t, servers)
			})
		})
	}
}

// The same after an attempt that failed: three acquires come when the caller has its answer.
func TestLateAcquireAfterFailureLeavesNoKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		holder, _ := locktest.Another(t, servers)
		for _, s := range servers[:3] { // the minority that is late is free
			s.Redis.HSet("x", "somebody:1", "1", "mode", "mutex")
			s.Redis.SetTTL("x", time.Hour)
		}
		warm(t, c)
		warm(t, holder)
		locktest.Each(servers[3:], func(s *embedded.Server) { late(s, "acquire", 300*time.Millisecond) })
		if _, err := c.Mutex("x").TryLock(t.Context()); !errors.Is(err, quorumlock.ErrHeld) {
			t.Fatalf("TryLock: %v, want ErrHeld", err)
		}
		time.Sleep(time.Second)
		for _, s := range servers[3:] {
			if s.Ran("acquire") != 3 || len(locktest.Keys(s)) > 0 {
				t.Errorf("%s ran %d acquires and has %q", s.Name, s.Ran("acquire"), locktest.Keys(s))
			}
		}
		locktest.Each(servers[:3], func(s *embedded.Server) { s.Redis.Del("x") })
		locktest.Nothing(t, servers)
	})
}

// A node that answers nobody in time may run what it was sent whenever it likes: the key is gone at its
// TTL, and keeps nobody out who has a quorum of the others.
func TestAcquireRunByANodeThatWasGivenUpIsGoneAtItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		warm(t, c)
		servers[0].Stall()
		locktest.Unlock(t, locktest.TryLock(t, c.Mutex("x")))
		time.Sleep(5 * time.Second) // every release that could undo it has been given up, too
		servers[0].Resume()
		synctest.Wait()
		for range 10 {
			locktest.Unlock(t, locktest.TryLock(t, c.Mutex("x")))
		}
		time.Sleep(quorumlock.DefaultTTL)
		locktest.Nothing(t, servers)
	})
}

// Nobody can release another owner's lock: a release that comes after the expiry finds the next holder.
func TestReleaseAfterExpiryTakesNothingFromTheNextHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		other, _ := locktest.Another(t, servers)
		lease := locktest.Lock(t, c.Mutex("x", quorumlock.WithoutRenewal(), quorumlock.WithTTL(time.Second)))
		time.Sleep(time.Second)
		next := locktest.TryLock(t, other.Mutex("x"))
		if err := lease.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("Unlock: %v, want ErrLost", err)
		}
		if err := lease.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrNotHeld) {
			t.Errorf("second Unlock: %v, want ErrNotHeld", err)
		}
		locktest.HoldsAll(t, servers, next)
		locktest.Refused(t, c.Mutex("x"))
		locktest.Unlock(t, next)
		locktest.Nothing(t, servers)
	})
}

// The release itself is late: it leaves in time, and arrives when the next holder has the lock.
func TestLateReleaseTakesNothingFromTheNextHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		other, _ := locktest.Another(t, servers)
		warm(t, c) // a server that does not know the script runs it late twice
		lease := locktest.Lock(t, c.Mutex("x", quorumlock.WithoutRenewal(), quorumlock.WithTTL(time.Second), quorumlock.WithNodeTimeout(time.Second)))
		locktest.Each(servers, func(s *embedded.Server) { late(s, "release", 900*time.Millisecond) })
		time.Sleep(500 * time.Millisecond)
		unlocked := make(chan error)
		go func() { unlocked <- lease.Unlock(t.Context()) }()
		time.Sleep(600 * time.Millisecond)
		next := locktest.TryLock(t, other.Mutex("x"))
		if err := <-unlocked; !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("Unlock when the keys had expired: %v, want ErrLost", err)
		}
		locktest.HoldsAll(t, servers, next)
		locktest.Each(servers, func(s *embedded.Server) { s.Before(nil) })
		locktest.Unlock(t, next)
		locktest.Nothing(t, servers)
	})
}

// A renewal is under way at every node when Unlock begins, and arrives after the release.
func TestRenewalRacingUnlockLeavesNoKey(t *testing.T) {
	const sent = 11 * time.Millisecond // by then: the nodes are sent renewals in turns
	for _, by := range []time.Duration{15 * time.Millisecond, 100 * time.Millisecond, 450 * time.Millisecond} {
		t.Run(by.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 5)
				lease := locktest.Lock(t, c.Mutex("x"))
				if err := lease.Extend(t.Context()); err != nil { // the nodes know the script
					t.Fatal(err)
				}
				synctest.Wait()
				before := make([]int, len(servers))
				for i, s := range servers {
					before[i] = s.Ran("renew")
				}
				locktest.Each(servers, func(s *embedded.Server) { late(s, "renew", by) })
				time.Sleep(quorumlock.DefaultTTL/3 + max(by/2, sent))
				locktest.Unlock(t, lease)
				locktest.NoLocks(t, servers)
				time.Sleep(by)
				for i, s := range servers {
					if n := s.Ran("renew") - before[i]; n != 1 {
						t.Errorf("renew ran %d times at %s, want once", n, s.Name)
					}
				}
				locktest.Nothing(t, servers)
			})
		})
	}
}

// The same for the renewal that asks a node to grant anew: it is no harmless one.
func TestNewGrantRacingUnlockLeavesNoKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5)
		lease := locktest.Lock(t, c.Mutex("x"))
		servers[0].Redis.FlushAll()
		asked, answer := make(chan struct{}), make(chan struct{})
		servers[0].Before(func(r embedded.Run) {
			if r.Script == "acquire" {
				close(asked)
				<-answer
			}
		})
		select {
		case <-asked:
		case <-time.After(time.Minute):
			t.Fatal("the node was not asked to grant anew")
		}
		locktest.Unlock(t, lease)
		synctest.Wait()
		locktest.NoLocks(t, servers)
		close(answer)
		synctest.Wait()
		if n := servers[0].Ran("acquire"); n != 2 {
			t.Fatalf("%d acquires ran, want the new grant to have come late", n)
		}
		locktest.Nothing(t, servers)
	})
}
