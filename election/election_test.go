package election_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestALeaderIsKnownWithItsValueFromCampaignToResign(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 2)
		c[1].nobody(t)
		term := c[0].leads(t)
		c[1].told(t, "0", term.Token())
		l, _ := c[1].Leader(t.Context())
		if l.Owner != term.Owner() || l.Nodes < l.Needed || l.Needed != 3 || l.Version != 1 || l.TTL < 6*time.Second {
			t.Errorf("Leader: %+v, want that of the term", l)
		}
		if now, ok := c[0].Leading(); !ok || now != term {
			t.Errorf("Leading: %v, %v", now, ok)
		}
		if _, ok := c[1].Leading(); ok {
			t.Error("the observer leads")
		}
		time.Sleep(time.Minute) // many TTLs
		c[1].told(t, "0", term.Token())
		if err := term.Proclaim(t.Context(), "moved"); err != nil {
			t.Fatal(err)
		}
		c[1].told(t, "moved", term.Token())
		if got := term.Value(); got != "moved" {
			t.Errorf("Value: %q", got)
		}
		resign(t, term)
		c[1].nobody(t)
		if err := term.Err(); !errors.Is(err, election.ErrResigned) {
			t.Errorf("Err: %v, want ErrResigned", err)
		}
		if err := term.Proclaim(t.Context(), "late"); !errors.Is(err, election.ErrResigned) {
			t.Errorf("Proclaim after Resign: %v, want ErrResigned", err)
		}
		if err := term.Resign(t.Context()); err != nil {
			t.Errorf("Resign again: %v", err)
		}
		locktest.Nothing(t, servers)
	})
}

// The release hands the lock over, and the next leader's value is known one round trip later.
func TestResignHandsOverAtOnce(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 2)
		first := c[0].leads(t)
		next := c[1].queues(t)
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		resign(t, first)
		second := <-next
		if took := time.Since(began); took > 5*time.Millisecond {
			t.Errorf("the next leads after %v, want at once", took)
		}
		if second.Token() <= first.Token() {
			t.Errorf("token %d after %d", second.Token(), first.Token())
		}
		c[0].told(t, "1", second.Token())
		resign(t, second)
		locktest.Nothing(t, servers)
	})
}

// A leader that is cut off learns it by the lease's own deadline, and the next leader begins after
// that, not before.
func TestLeadershipEndsForTheLeaderBeforeTheNextLeads(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 2)
		first := c[0].leads(t)
		locktest.Each(c[0].paths, (*embedded.Server).Stall)
		late := make(chan error, 1)
		go func() { late <- first.Proclaim(t.Context(), "late") }() // in progress until the end
		second := c[1].leads(t)
		if err := <-late; err == nil {
			t.Error("a proclaim that no node has taken has succeeded")
		}
		select {
		case <-first.Context().Done():
		default:
			t.Fatal("two lead")
		}
		if cause := context.Cause(first.Context()); !errors.Is(cause, quorumlock.ErrLost) {
			t.Errorf("cause %v, want ErrLost", cause)
		}
		if err := first.Proclaim(t.Context(), "stale"); !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("Proclaim: %v, want ErrLost", err)
		}
		locktest.Each(c[0].paths, (*embedded.Server).Resume) // earlier requests run now
		time.Sleep(time.Second)
		c[0].told(t, "1", second.Token())
		if err := c[0].Resign(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("Resign: %v, want ErrLost", err)
		}
		c[0].told(t, "1", second.Token())
		resign(t, second)
		locktest.Nothing(t, servers)
	})
}

func TestResignAnswersOnceForATermThatIsOver(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, _ := start(t, 1)
		term := c[0].leads(t)
		for range 2 {
			if err := c[0].Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := c[0].Resign(t.Context()); !errors.Is(err, election.ErrNotLeader) {
				t.Errorf("Resign of an election that does not lead any more: %v, want ErrNotLeader", err)
			}
			if err := term.Resign(t.Context()); err != nil {
				t.Errorf("Resign of the term again: %v, want the same again", err)
			}
			term = c[0].leads(t)
		}
		resign(t, term)
	})
}

// The nodes keep the keys for the drift longer than the lease: a read in that time must not return
// a leader.
func TestADeadLeaderIsNotSureAfterItsLease(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, _ := start(t, 2)
		term := c[0].leads(t)
		time.Sleep(time.Second)
		locktest.Each(c[0].paths, (*embedded.Server).Kill)
		until := term.ValidUntil()
		sure := 0
		for time.Since(until) < time.Second {
			l, err := c[1].Leader(t.Context())
			switch {
			case err == nil && l.Sure && !time.Now().Before(until):
				t.Fatalf("sure %v after its lease: %v", time.Since(until), l)
			case err == nil && l.Sure:
				sure++
			}
			if time.Until(until).Abs() < 200*time.Millisecond {
				time.Sleep(time.Millisecond)
			} else {
				time.Sleep(50 * time.Millisecond)
			}
		}
		if sure < 300 {
			t.Errorf("sure %d times, want until the end of the lease", sure)
		}
		c[1].nobody(t)
	})
}

func TestAMinorityIsNeverSure(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 2)
		term := c[0].leads(t)
		locktest.Each(c[1].paths[2:], (*embedded.Server).Kill)
		l, err := c[1].Leader(t.Context())
		if q, ok := errors.AsType[*quorumlock.QuorumError](err); !ok || q.Granted != 2 || q.Needed != 3 || len(q.Nodes) != 3 {
			t.Errorf("Leader: %v, want a QuorumError of 2 of 3", err)
		}
		if l.Sure || l.Value != "0" || l.Nodes != 2 {
			t.Errorf("Leader: %v, want the guess", l)
		}
		locktest.Each(c[1].paths[2:], func(s *embedded.Server) { s.Restart(true) })
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

// A node that is down, frozen or cut off delays neither Campaign, nor Proclaim, Leader and Resign.
func TestASilentMinorityCostsNothing(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 1)
		resign(t, c[0].leads(t)) // it has connected
		servers[0].Stall()
		servers[1].Kill()
		began := time.Now()
		term := c[0].leads(t)
		if err := term.Proclaim(t.Context(), "v"); err != nil {
			t.Error(err)
		}
		c[0].told(t, "v", term.Token())
		resign(t, term)
		c[0].nobody(t)
		if took := time.Since(began); took > 5*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		servers[0].Resume()
		servers[1].Restart(true)
		time.Sleep(quorumlock.DefaultTTL)
		locktest.Nothing(t, servers)
	})
}

func TestProclaimSaysWhenTooFewNodesTakeTheValueAndGoesOn(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, _ := start(t, 2)
		term := c[0].leads(t)
		locktest.Each(c[0].paths[:3], (*embedded.Server).Mute)
		err := term.Proclaim(t.Context(), "v")
		if q, ok := errors.AsType[*quorumlock.QuorumError](err); !ok || q.Granted != 2 || len(q.Nodes) != 3 {
			t.Errorf("Proclaim: %v, want a QuorumError of 2 of 3", err)
		}
		locktest.Each(c[0].paths[:3], (*embedded.Server).Resume)
		time.Sleep(time.Second)
		c[1].told(t, "v", term.Token())
		resign(t, term)
	})
}

func TestTheLastOfSeveralProclaimsWins(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 1)
		term := c[0].leads(t)
		locktest.Each(servers, func(s *embedded.Server) { s.Delay(10 * time.Millisecond) })
		first := make(chan error)
		go func() { first <- term.Proclaim(t.Context(), "first") }()
		time.Sleep(5 * time.Millisecond)
		if err := term.Proclaim(t.Context(), "last"); err != nil {
			t.Error(err)
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
		c[0].told(t, "last", term.Token())
		resign(t, term)
	})
}

// A cancelled candidate leaves nothing behind, at any stage.
func TestACampaignThatIsCancelledLeavesNothing(t *testing.T) {
	for _, after := range []time.Duration{time.Millisecond, 15 * time.Millisecond, 25 * time.Millisecond, 35 * time.Millisecond, 45 * time.Millisecond, 200 * time.Millisecond} {
		locktest.Run(t, after.String(), func(t *testing.T) {
			c, servers := start(t, 1)
			locktest.Each(servers, func(s *embedded.Server) { s.Delay(10 * time.Millisecond) })
			term, err := c[0].Campaign(within(t, after))
			if err == nil {
				<-term.Context().Done()
				resign(t, term)
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Campaign: %v, want DeadlineExceeded", err)
			}
			locktest.Each(servers, func(s *embedded.Server) { s.Delay(0) })
			time.Sleep(time.Second)
			locktest.Nothing(t, servers)
		})
	}
}

// A term that ends without a Resign does not block the others forever.
func TestATermThatNobodyResignsEndsATTLAfterItsContext(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 2)
		ctx, cancel := context.WithCancel(t.Context())
		term, err := c[0].Campaign(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		cancel()
		began := time.Now()
		second := c[1].leads(t)
		if took := time.Since(began); took < quorumlock.DefaultTTL || took > quorumlock.DefaultTTL+time.Second {
			t.Errorf("the next leads after %v, want a TTL", took)
		}
		if err := c[0].Health(time.Second); err != nil {
			// The lock was released, but the holder never reported the end of its work.
			if !strings.Contains(err.Error(), "still at work") {
				t.Errorf("Health: %v", err)
			}
		} else {
			t.Error("Health: nil, want an error")
		}
		if err := term.Resign(t.Context()); !errors.Is(err, election.ErrNotDrained) {
			t.Errorf("Resign: %v, want ErrNotDrained", err)
		}
		if err := c[0].Health(time.Second); err != nil {
			t.Errorf("Health after Resign: %v", err)
		}
		resign(t, second)
		locktest.Nothing(t, servers)
	})
}

func TestOptionsOfTheMutexApply(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 5)
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
		if err := term.Resign(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("Resign: %v", err)
		}
		time.Sleep(time.Second)
		locktest.Nothing(t, servers)
	})
}

// A client that the caller passes, as for a cluster, orders its calls differently.
func TestAnElectionOverClientsOfTheProgram(t *testing.T) {
	c, _, err := embedded.Nodes(1)
	if err != nil {
		t.Fatal(err)
	}
	own, err := c[0].Node()
	if err != nil {
		t.Fatal(err)
	}
	n := node.New(own.Client())
	client, err := redlock.New([]*node.Node{n})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = client.Close()
		_ = own.Close()
		c[0].Close()
	}()
	e := election.New(client.Mutex("job"), "v")
	for range 20 {
		term, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := term.Proclaim(t.Context(), "w"); err != nil {
			t.Fatal(err)
		}
		if l, err := e.Leader(t.Context()); err != nil || !l.Sure || l.Value != "w" || l.Token != term.Token() {
			t.Fatalf("Leader: %v, %v", l, err)
		}
		if err := term.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Leader(t.Context()); !errors.Is(err, election.ErrNoLeader) {
			t.Fatalf("Leader: %v", err)
		}
	}
	if left := locktest.Keys(c[0]); len(left) > 0 {
		t.Errorf("keys are left: %q", left)
	}
}

// A plain holder of the lock blocks candidates, and is no leader.
func TestAHolderOfTheLockIsNoLeader(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, _ := start(t, 2)
		lease := locktest.Lock(t, c[0].client.Mutex("job"))
		c[1].nobody(t)
		if _, err := c[1].Campaign(within(t, time.Second)); !errors.Is(err, quorumlock.ErrHeld) {
			t.Errorf("Campaign: %v, want ErrHeld", err)
		}
		locktest.Unlock(t, lease)
	})
}

func TestTwoAddressesOfOneServerCountOnce(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 2)
		c, _ := locktest.Twin(t, servers)
		e := election.New(c.Mutex("job"), "v")
		term, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
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

// A proclaim that comes late, when a later value is there, changes nothing.
func TestALateProclaimChangesNothing(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 1)
		term := c[0].leads(t)
		if err := term.Proclaim(t.Context(), "later"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // for the nodes beyond the quorum
		_, nodes := locktest.Paths(t, servers)
		for i, n := range nodes {
			late := wire.Proclaim("job", term.Owner(), time.Minute, term.Token(), 1, "earlier").At(i)
			if p, err := transport.Of(n).Send(t.Context(), late)[0].Proclaimed(); err != nil || p == wire.Proclaimed {
				t.Errorf("%d, %v, want it refused", p, err)
			}
		}
		c[0].told(t, "later", term.Token())
		resign(t, term)
	})
}

// The keys of a dead leader beside the lock do not count for the next holder.
func TestAValueOfAFormerLeaderIsNotTheHolders(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, _ := start(t, 2)
		c[0].leads(t)
		locktest.Each(c[0].paths, (*embedded.Server).Kill)
		if err := c[1].client.Mutex("job").ForceUnlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		lease := locktest.Lock(t, c[1].client.Mutex("job"))
		c[1].nobody(t)
		locktest.Unlock(t, lease)
	})
}

// A copy of a term is the same term: Proclaim and Resign of the copy act on the term.
func TestACopyOfATermIsTheSameTerm(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 2)
		term := c[0].leads(t)
		same := *term
		if err := same.Proclaim(t.Context(), "moved"); err != nil || term.Value() != "moved" {
			t.Errorf("Proclaim of a copy: %v, and the value is %q", err, term.Value())
		}
		if err := same.Resign(t.Context()); err != nil {
			t.Errorf("Resign of a copy: %v", err)
		}
		if err := term.Err(); !errors.Is(err, election.ErrResigned) {
			t.Errorf("Err: %v, want ErrResigned", err)
		}
		c[1].nobody(t)
		locktest.Nothing(t, servers)
	})
}
