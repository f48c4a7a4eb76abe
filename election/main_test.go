package election_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestMain(m *testing.M) { locktest.Main(m) }

// candidate is one process: a client with paths of its own to the servers, and its part in the
// election "job".
type candidate struct {
	*election.Election
	client *redlock.Client
	paths  []*embedded.Server
}

// start returns n candidates over five servers. The i-th has the value "i".
func start(t *testing.T, n int, opts ...quorumlock.Option) ([]*candidate, []*embedded.Server) {
	t.Helper()
	servers, _ := locktest.Nodes(t, 5)
	all := make([]*candidate, n)
	for i := range all {
		all[i] = join(t, servers, fmt.Sprint(i), opts...)
	}
	return all, servers
}

func join(t *testing.T, servers []*embedded.Server, value string, opts ...quorumlock.Option) *candidate {
	t.Helper()
	c, paths := locktest.Another(t, servers, opts...)
	return &candidate{election.New(c.Mutex("job"), value), c, paths}
}

// leads campaigns, or ends the test.
func (c *candidate) leads(t *testing.T) *election.Term {
	t.Helper()
	term, err := c.Campaign(t.Context())
	if err != nil {
		t.Fatalf("Campaign: %v", err)
	}
	synctest.Wait()
	return term
}

// queues campaigns in the background.
func (c *candidate) queues(t *testing.T) <-chan *election.Term {
	t.Helper()
	led := make(chan *election.Term, 1)
	go func() {
		term, err := c.Campaign(t.Context())
		if err != nil {
			t.Errorf("Campaign: %v", err)
		}
		led <- term
	}()
	return led
}

func resign(t *testing.T, term *election.Term) {
	t.Helper()
	if err := term.Resign(t.Context()); err != nil {
		t.Errorf("Resign: %v", err)
	}
	synctest.Wait()
}

// told checks the result of Leader.
func (c *candidate) told(t *testing.T, value string, token uint64) {
	t.Helper()
	l, err := c.Leader(t.Context())
	if err != nil || !l.Sure || l.Value != value || l.Token != token {
		t.Errorf("Leader: %v, %v; want %q, token %d, sure", l, err, value, token)
	}
}

func (c *candidate) nobody(t *testing.T) {
	t.Helper()
	if l, err := c.Leader(t.Context()); !errors.Is(err, election.ErrNoLeader) {
		t.Errorf("Leader: %v, %v; want ErrNoLeader", l, err)
	}
}

// within returns a context that is done after d.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
