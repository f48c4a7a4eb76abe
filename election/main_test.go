package election_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// candidate is one process: a client with paths of its own to the servers, and its part in the
// election "job".
type candidate struct {
	*election.Election
	client *redlock.Client
	paths  []*embedded.Server

	watching []*seen
}

// start returns n candidates over five servers. The i-th has the value "i".
func start(t *testing.T, n int, opts ...quorumlock.Option) ([]*candidate, []*embedded.Server) {
	t.Helper()
	servers, _ := testkit.Nodes(t, 5)
	all := make([]*candidate, n)
	for i := range all {
		all[i] = join(t, servers, fmt.Sprint(i), opts...)
	}
	return all, servers
}

func join(t *testing.T, servers []*embedded.Server, value string, opts ...quorumlock.Option) *candidate {
	t.Helper()
	c, paths := testkit.Another(t, servers, opts...)
	return &candidate{Election: election.New(c.Mutex("job"), value), client: c, paths: paths}
}

// elect runs a subtest of n candidates. At its end all observers end, the leader resigns, and
// nothing must be left at the nodes.
func elect(t *testing.T, name string, n int, f func(t *testing.T, c []*candidate, servers []*embedded.Server), opts ...quorumlock.Option) {
	t.Helper()
	testkit.Run(t, name, func(t *testing.T) {
		c, servers := start(t, n, opts...)
		f(t, c, servers)
		for _, c := range c {
			for _, o := range c.watching {
				o.end()
			}
			if term, ok := c.Leading(); ok {
				resign(t, term)
			}
		}
		synctest.Wait()
		testkit.Nothing(t, servers)
	})
}

// leads campaigns, or ends the test.
func (c *candidate) leads(t *testing.T) *election.Term {
	t.Helper()
	term, err := c.Campaign(t.Context())
	testkit.Must(t, err, "Campaign")
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
	testkit.OK(t, term.Resign(t.Context()), "Resign")
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

// says checks that an error has a text.
func says(t *testing.T, err error, text, call string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v, want an error that says %q", call, err, text)
	}
}

// occupy gives a key of a lock to another program.
func occupy(t *testing.T, key string, servers ...*embedded.Server) {
	t.Helper()
	for _, s := range servers {
		testkit.Must(t, s.Redis.Set(key, "mine"), "Set")
	}
}

// killAtProclaim cuts off servers when a value comes. What it returns restarts them.
func killAtProclaim(servers ...*embedded.Server) (restart func()) {
	for _, s := range servers {
		s.Before(func(r embedded.Run) {
			if r.Script == "proclaim" {
				s.Kill()
			}
		})
	}
	return func() {
		testkit.Each(servers, func(s *embedded.Server) { s.Before(nil) })
		testkit.Restart(servers...)
	}
}
