//go:build unix

package integration

import (
	"context"
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// watch observes an election until the end of the test, and returns a channel of its leaders.
func watch(t *testing.T, e *election.Election) <-chan election.Leader {
	t.Helper()
	told := make(chan election.Leader)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(told)
		for l := range e.Observe(ctx) {
			select {
			case told <- l:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		for range told {
		}
	})
	return told
}

// tells waits until an observer has seen the leader with that value.
func tells(t *testing.T, told <-chan election.Leader, value string) election.Leader {
	t.Helper()
	for limit := time.After(patience); ; {
		select {
		case l := <-told:
			if l.Value == value && l.Sure {
				return l
			}
		case <-limit:
			t.Fatalf("nobody tells of %q", value)
		}
	}
}

// A leader that is stopped past its lease still believes that it leads until it is continued.
// Others lead meanwhile. It learns of the loss before its next call returns, and cannot proclaim.
func TestLeaderThatIsStoppedPastItsLeaseLearnsBeforeItsNextCallReturns(t *testing.T) {
	needServers(t)
	t.Cleanup(func() { noLocks(t, five, patience) })
	other := dial(t, five, unhurried, quorumlock.WithTTL(stoppedTTL*5))
	e := election.New(other.Mutex("leader"), "second")
	told := watch(t, e)
	urls := ""
	for _, s := range five {
		urls += " " + s.url()
	}
	c := startChild(t, "lead"+urls)
	var stale uint64
	c.says(t, "leads", &stale)
	if l := tells(t, told, "first"); l.Token != stale {
		t.Errorf("told of token %d, want %d", l.Token, stale)
	}

	must(t, c.cmd.Process.Signal(syscall.SIGSTOP))
	term, err := e.Campaign(t.Context()) // though the process lives
	must(t, err)
	if term.Token() <= stale {
		t.Errorf("token %d after %d", term.Token(), stale)
	}
	tells(t, told, "second")
	_, err = io.WriteString(c.in, "proclaim\n") // the first is just about to
	must(t, err)

	continued := time.Now()
	must(t, c.cmd.Process.Signal(syscall.SIGCONT))
	var lost, refused bool
	c.says(t, "told", &lost)
	if took := time.Since(continued); took > margin {
		t.Errorf("the process was told of its loss %v after it went on", took)
	}
	c.says(t, "proclaims", &refused)
	if !lost || !refused {
		t.Errorf("the process was told of a loss: %v; by its next call: %v", lost, refused)
	}
	l, err := e.Leader(t.Context())
	if err != nil || !l.Sure || l.Value != "second" || l.Token != term.Token() {
		t.Errorf("Leader: %v, %v", l, err)
	}
	must(t, term.Err())
	must(t, c.in.Close())
	for range c.said {
	}
	must(t, c.cmd.Wait())
	must(t, term.Resign(t.Context()))
	if _, err := e.Leader(t.Context()); !errors.Is(err, election.ErrNoLeader) {
		t.Errorf("Leader: %v, want ErrNoLeader", err)
	}
}

// A tenant holds elections with its own rights, and reaches none of another tenant.
func TestTenantHoldsElectionsUnderItsOwnRights(t *testing.T) {
	needUsers(t)
	servers := five[:3]
	t.Cleanup(func() { noLocks(t, servers, patience) })
	a := tenant{"a", "pass-of-a"}
	for _, s := range servers {
		a.admit(t, []*server{s}, lockCommands()...)
		must(t, s.admin.ACLLogReset(t.Context()).Err())
		t.Cleanup(func() { must(t, s.admin.ACLDelUser(context.Background(), a.name).Err()) })
	}
	for _, name := range []string{"leader", "{tag}:leader"} {
		e := election.New(a.client(t, servers, "a:").Mutex(name), "here")
		told := watch(t, e)
		term, err := e.Campaign(t.Context())
		must(t, err)
		tells(t, told, "here")
		must(t, term.Proclaim(t.Context(), "there"))
		tells(t, told, "there")
		must(t, term.Resign(t.Context()))
	}
	if denied := deniedTo(t, servers, a.name); len(denied) > 0 {
		t.Errorf("denied: %q", denied)
	}
	// Campaign does not wait for a change that only an administrator can make.
	e := election.New(a.client(t, servers, "b:").Mutex("leader"), "here")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := e.Campaign(ctx); err == nil {
		t.Error("it leads with the prefix of another tenant")
	}
	raw := a.raw(t, servers[0])
	if err := raw.Publish(t.Context(), wire.LeaderKey("b:leader"), "x").Err(); err == nil && since(6, 2) {
		t.Error("it publishes to another tenant's observers")
	}
}
