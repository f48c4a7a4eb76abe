package election_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
)

// A Mutex of the same name may have data, which is no value of a leader.
func TestAHolderWithDataDoesNotLead(t *testing.T) {
	elect(t, "data", 2, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		lease := testkit.Lock(t, c[0].client.Mutex("job", quorumlock.WithData("job 17")))
		leader, err := c[1].Leader(t.Context())
		testkit.Is(t, err, election.ErrNoLeader, "Leader: %v", leader)
		testkit.Unlock(t, lease)
	})
}

func TestLeader(t *testing.T) {
	elect(t, "is known with its value from Campaign to Resign", 2, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		c[1].nobody(t)
		term := c[0].leads(t)
		c[1].told(t, "0", term.Token())
		if l, _ := c[1].Leader(t.Context()); l.Owner != term.Owner() || l.Nodes < l.Needed || l.Needed != 3 || l.Version != 1 || l.TTL < 6*time.Second {
			t.Errorf("Leader: %+v, want that of the term", l)
		}
		now, leads := c[0].Leading()
		if _, other := c[1].Leading(); !leads || now != term || other {
			t.Errorf("Leading: %v, %v; of the observer %v", now, leads, other)
		}
		time.Sleep(time.Minute) // many TTLs
		c[1].told(t, "0", term.Token())
		testkit.Must(t, term.Proclaim(t.Context(), "moved"), "Proclaim")
		c[1].told(t, "moved", term.Token())
		testkit.Equal(t, term.Value(), "moved", "Value")
		resign(t, term)
		c[1].nobody(t)
		testkit.Is(t, term.Err(), election.ErrResigned, "Err")
		testkit.Is(t, term.Proclaim(t.Context(), "late"), election.ErrResigned, "Proclaim after Resign")
		testkit.OK(t, term.Resign(t.Context()), "Resign again")
	})
	// The nodes keep the keys for the drift longer than the lease: a read in that time must not return
	// a leader.
	elect(t, "is not sure when its lease is over", 2, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		term := c[0].leads(t)
		time.Sleep(time.Second)
		testkit.Kill(c[0].paths...)
		until, sure := term.ValidUntil(), 0
		for time.Since(until) < time.Second {
			l, err := c[1].Leader(t.Context())
			if err == nil && l.Sure {
				if sure++; !time.Now().Before(until) {
					t.Fatalf("sure %v after its lease: %v", time.Since(until), l)
				}
			}
			time.Sleep(max(time.Millisecond, time.Until(until).Abs()/200)) // the shorter the nearer
		}
		if sure < 300 {
			t.Errorf("sure %d times, want until the end of the lease", sure)
		}
		c[1].nobody(t)
	})
	elect(t, "is no plain holder of the lock", 2, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		lease := testkit.Lock(t, c[0].client.Mutex("job"))
		c[1].nobody(t)
		testkit.Is(t, testkit.Err(c[1].Campaign(testkit.Within(t, time.Second))), quorumlock.ErrHeld, "Campaign")
		testkit.Unlock(t, lease)
	})
	elect(t, "is no holder with the value of a dead leader", 2, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		dead := c[0].leads(t)
		testkit.Kill(c[0].paths...)
		testkit.Must(t, c[1].client.ForceUnlock(t.Context(), "job"), "ForceUnlock")
		lease := testkit.Lock(t, c[1].client.Mutex("job"))
		c[1].nobody(t)
		testkit.Unlock(t, lease)
		_ = dead.Resign(t.Context())
		time.Sleep(quorumlock.DefaultTTL)
	})
	testkit.Run(t, "counts at two addresses of a server once", func(t *testing.T) {
		servers, _ := testkit.Nodes(t, 2)
		c, _ := testkit.Twin(t, servers)
		e := election.New(c.Mutex("job"), "v")
		term, err := e.Campaign(t.Context())
		testkit.Must(t, err, "Campaign")
		synctest.Wait()
		if l, err := e.Leader(t.Context()); err != nil || !l.Sure || l.Nodes != 2 {
			t.Errorf("Leader: %v, %v; want it at 2 nodes", l, err)
		}
		servers[1].Kill() // two of three addresses are left, of one server
		if l, err := e.Leader(t.Context()); err != nil || l.Sure {
			t.Errorf("Leader: %v, %v; want it not to be sure", l, err)
		}
		_ = term.Resign(t.Context())
	})
}

// A leader that is cut off learns it by the lease's own deadline, and the next leader begins after
// that, not before.
func TestLeadershipEndsForTheLeaderBeforeTheNextLeads(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 2)
		first := c[0].leads(t)
		testkit.Each(c[0].paths, (*embedded.Server).Stall)
		late := testkit.Go(func() error { return first.Proclaim(t.Context(), "late") }) // in progress until the end
		second := c[1].leads(t)
		if err := <-late; err == nil {
			t.Error("a proclaim that no node has taken has succeeded")
		}
		testkit.Is(t, context.Cause(first.Context()), quorumlock.ErrLost, "two lead, or the cause of the first context")
		testkit.Is(t, first.Proclaim(t.Context(), "stale"), quorumlock.ErrLost, "Proclaim")
		testkit.Each(c[0].paths, (*embedded.Server).Resume) // earlier requests run now
		time.Sleep(time.Second)
		c[0].told(t, "1", second.Token())
		testkit.Is(t, c[0].Resign(t.Context()), quorumlock.ErrLost, "Resign")
		c[0].told(t, "1", second.Token())
		resign(t, second)
		testkit.Nothing(t, servers)
	})
}

func TestAMinorityIsNeverSure(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 2)
		term := c[0].leads(t)
		testkit.Kill(c[1].paths[2:]...)
		l, err := c[1].Leader(t.Context())
		if q, ok := errors.AsType[*quorumlock.QuorumError](err); !ok || q.Granted != 2 || q.Needed != 3 || len(q.Nodes) != 3 {
			t.Errorf("Leader: %v, want a QuorumError of 2 of 3", err)
		}
		if l.Sure || l.Value != "0" || l.Nodes != 2 {
			t.Errorf("Leader: %v, want the guess", l)
		}
		testkit.Restart(c[1].paths[2:]...)
		// A minority has lost the value, though all have the lock.
		for _, s := range servers[:3] {
			s.Redis.Del(wire.LeaderKey("job"))
		}
		if l, err := c[1].Leader(t.Context()); err != nil || l.Sure || l.Nodes != 2 || l.Value != "0" {
			t.Errorf("Leader: %v, %v; want a guess", l, err)
		}
		time.Sleep(4 * time.Second) // the term brings it back with the next round
		c[1].told(t, "0", term.Token())
		resign(t, term)
	})
}

func TestResign(t *testing.T) {
	// The release hands the lock over, and the next leader's value is known one round trip later.
	elect(t, "hands over at once", 2, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		first := c[0].leads(t)
		next := c[1].queues(t)
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		resign(t, first)
		second := <-next
		testkit.Took(t, began, 0, 5*time.Millisecond, "the next leads")
		if second.Token() <= first.Token() {
			t.Errorf("token %d after %d", second.Token(), first.Token())
		}
		c[0].told(t, "1", second.Token())
	})
	elect(t, "answers once for a term that is over", 1, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		term := c[0].leads(t)
		for range 2 {
			testkit.Must(t, c[0].Resign(t.Context()), "Resign")
			testkit.Is(t, c[0].Resign(t.Context()), election.ErrNotLeader, "Resign of an election that does not lead any more")
			testkit.OK(t, term.Resign(t.Context()), "Resign of the term again")
			term = c[0].leads(t)
		}
	})
	elect(t, "does not report the loss of another lock", 1, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		outer := testkit.Lock(t, c[0].client.Mutex("outer"))
		term, err := c[0].Campaign(outer.Context())
		testkit.Must(t, err, "Campaign")
		testkit.Must(t, c[0].client.ForceUnlock(t.Context(), "outer"), "ForceUnlock")
		<-term.Context().Done()
		testkit.Is(t, term.Err(), quorumlock.ErrLost, "the end of the term")
		testkit.OK(t, term.Resign(t.Context()), "Resign")
		_ = outer.Unlock(t.Context())
	})
	elect(t, "acts on the term of a copy", 2, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		term := c[0].leads(t)
		same := *term
		if err := same.Proclaim(t.Context(), "moved"); err != nil || term.Value() != "moved" {
			t.Errorf("Proclaim of a copy: %v, and the value is %q", err, term.Value())
		}
		testkit.OK(t, same.Resign(t.Context()), "Resign of a copy")
		testkit.Is(t, term.Err(), election.ErrResigned, "Err")
		c[1].nobody(t)
	})
	elect(t, "is not needed a TTL after the end of the context", 2, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		ctx, cancel := context.WithCancel(t.Context())
		term, err := c[0].Campaign(ctx)
		testkit.Must(t, err, "Campaign")
		time.Sleep(time.Minute)
		cancel()
		began := time.Now()
		c[1].leads(t)
		testkit.Took(t, began, quorumlock.DefaultTTL, quorumlock.DefaultTTL+time.Second, "the next leads")
		says(t, c[0].Health(time.Second), "still at work", "Health of a holder who never reported the end of the work")
		testkit.Is(t, term.Resign(t.Context()), election.ErrNotDrained, "Resign")
		testkit.OK(t, c[0].Health(time.Second), "Health after Resign")
	})
}

func TestProclaim(t *testing.T) {
	elect(t, "says when too few nodes take the value, and goes on", 2, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		term := c[0].leads(t)
		testkit.Each(c[0].paths[:3], (*embedded.Server).Mute)
		err := term.Proclaim(t.Context(), "v")
		if q, ok := errors.AsType[*quorumlock.QuorumError](err); !ok || q.Granted != 2 || len(q.Nodes) != 3 {
			t.Errorf("Proclaim: %v, want a QuorumError of 2 of 3", err)
		}
		testkit.Each(c[0].paths[:3], (*embedded.Server).Resume)
		time.Sleep(time.Second)
		c[1].told(t, "v", term.Token())
	})
	elect(t, "changes the value to that of the last call", 1, func(t *testing.T, c []*candidate, servers []*embedded.Server) {
		term := c[0].leads(t)
		testkit.Each(servers, func(s *embedded.Server) { s.Delay(10 * time.Millisecond) })
		first := testkit.Go(func() error { return term.Proclaim(t.Context(), "first") })
		time.Sleep(5 * time.Millisecond)
		testkit.OK(t, term.Proclaim(t.Context(), "last"), "Proclaim")
		testkit.OK(t, <-first, "the first Proclaim")
		c[0].told(t, "last", term.Token())
	})
	elect(t, "changes nothing when it comes late", 1, func(t *testing.T, c []*candidate, servers []*embedded.Server) {
		term := c[0].leads(t)
		testkit.Must(t, term.Proclaim(t.Context(), "later"), "Proclaim")
		synctest.Wait() // for the nodes beyond the quorum
		_, nodes := testkit.Paths(t, servers)
		for i, n := range nodes {
			late := wire.Proclaim("job", term.Owner(), time.Minute, term.Token(), 1, "earlier").At(i)
			if p, err := testkit.Send(t.Context(), n, late)[0].Proclaimed(); err != nil || p == wire.Proclaimed {
				t.Errorf("%d, %v, want it refused", p, err)
			}
		}
		c[0].told(t, "later", term.Token())
	})
	elect(t, "and all other calls do not wait for a silent minority", 1, func(t *testing.T, c []*candidate, servers []*embedded.Server) {
		resign(t, c[0].leads(t)) // it has connected
		servers[0].Stall()
		servers[1].Kill()
		began := time.Now()
		term := c[0].leads(t)
		testkit.OK(t, term.Proclaim(t.Context(), "v"), "Proclaim")
		c[0].told(t, "v", term.Token())
		resign(t, term)
		c[0].nobody(t)
		testkit.Took(t, began, 0, 5*time.Millisecond, "all of it")
		servers[0].Resume()
		servers[1].Restart(true)
		time.Sleep(quorumlock.DefaultTTL)
	})
}

func TestACampaignThatIsCancelledLeavesNothing(t *testing.T) {
	for _, ms := range []time.Duration{1, 15, 25, 35, 45, 200} {
		elect(t, fmt.Sprint("after ", ms, " ms"), 1, func(t *testing.T, c []*candidate, servers []*embedded.Server) {
			testkit.Each(servers, func(s *embedded.Server) { s.Delay(10 * time.Millisecond) })
			term, err := c[0].Campaign(testkit.Within(t, ms*time.Millisecond))
			if err == nil {
				<-term.Context().Done()
				resign(t, term)
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Campaign: %v, want DeadlineExceeded", err)
			}
			testkit.Each(servers, func(s *embedded.Server) { s.Delay(0) })
			time.Sleep(time.Second)
		})
	}
}

func TestOptionsOfTheMutexApply(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		servers, _ := testkit.Nodes(t, 5)
		c := join(t, servers, "v", quorumlock.WithPrefix("{tenant}:"), quorumlock.WithLabel("blue-7"), quorumlock.WithQuorum(4),
			quorumlock.WithTTL(3*time.Second), quorumlock.WithMaxHold(10*time.Second), quorumlock.WithWait(time.Second))
		term := c.leads(t)
		l, err := c.Leader(t.Context())
		if err != nil || !l.Sure || l.Needed != 4 || l.Owner.Label() != "blue-7" || !strings.Contains(l.String(), "blue-7") {
			t.Errorf("Leader: %v, %v", l, err)
		}
		for _, s := range servers {
			if !s.Redis.Exists("quorumlock_leader*:{tenant}:job") {
				t.Errorf("%s has %q", s.Name, s.Redis.Keys())
			}
		}
		other := join(t, servers, "w", quorumlock.WithPrefix("{tenant}:"), quorumlock.WithQuorum(4), quorumlock.WithWait(time.Second))
		if _, err := other.Campaign(t.Context()); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, quorumlock.ErrHeld) {
			t.Errorf("Campaign: %v, want DeadlineExceeded and ErrHeld", err)
		}
		began := time.Now()
		<-term.Context().Done()
		if took := time.Since(began); took < 8*time.Second || took > 13*time.Second || !errors.Is(term.Err(), quorumlock.ErrLost) {
			t.Errorf("the term ended after %v with %v, want MaxHold to end it", took, term.Err())
		}
		testkit.Is(t, term.Resign(t.Context()), quorumlock.ErrLost, "Resign")
		time.Sleep(time.Second)
		testkit.Nothing(t, servers)
	})
}

// A client that the caller passes, as for a cluster, orders its calls differently.
func TestAnElectionOverClientsOfTheProgram(t *testing.T) {
	servers, own := testkit.Nodes(t, 1)
	n, err := node.New(own[0].Client())
	testkit.Must(t, err, "New")
	e := election.New(testkit.Of(t, []*node.Node{n}).Mutex("job"), "v")
	for range 20 {
		term, err := e.Campaign(t.Context())
		testkit.Must(t, err, "Campaign")
		testkit.Must(t, term.Proclaim(t.Context(), "w"), "Proclaim")
		if l, err := e.Leader(t.Context()); err != nil || !l.Sure || l.Value != "w" || l.Token != term.Token() {
			t.Fatalf("Leader: %v, %v", l, err)
		}
		testkit.Must(t, term.Resign(t.Context()), "Resign")
		testkit.Is(t, testkit.Err(e.Leader(t.Context())), election.ErrNoLeader, "Leader")
	}
	testkit.NoLocks(t, servers)
}
