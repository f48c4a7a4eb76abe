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
)

// all returns the error of each call of an election with ctx.
func all(ctx context.Context, e *election.Election) map[string]error {
	errs := make(map[string]error)
	_, errs["Campaign"] = e.Campaign(ctx)
	errs["Run"] = e.Run(ctx, func(context.Context) error { return nil })
	_, errs["Leader"] = e.Leader(ctx)
	for _, err := range e.Observe(ctx) {
		errs["Observe"] = err
	}
	return errs
}

func TestBadInputIsRefusedWithTheFix(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 1)
		client := c[0].client
		for _, tt := range []struct {
			what string
			e    *election.Election
			want string
		}{
			{"no mutex", election.New(nil, ""), "use client.Mutex of a redlock.Client"},
			{"an empty name", election.New(client.Mutex(""), ""), "the name of the lock is empty: use a name"},
			{"a reserved name", election.New(client.Mutex("quorumlock_leader:{job}"), ""), "use a name with another beginning"},
			{"a bad option", election.New(client.Mutex("x", quorumlock.WithTTL(1)), ""), "WithTTL(1ns) is too short: use at least"},
			{"an owner", election.New(client.Mutex("x", quorumlock.WithOwner(quorumlock.NewOwner())), ""), "WithOwner"},
			{"a long value", election.New(client.Mutex("x"), strings.Repeat("v", 64<<10+1)), "the value has 65537 bytes: use at most 65536"},
		} {
			errs := all(t.Context(), tt.e)
			errs["Resign"], errs["Health"] = tt.e.Resign(t.Context()), tt.e.Health(0)
			testkit.Equal(t, len(errs), 6, "%s: calls that have answered", tt.what)
			for call, err := range errs {
				says(t, err, tt.want, tt.what+": "+call)
				if !strings.HasPrefix(fmt.Sprint(err), "quorumlock: ") {
					t.Errorf("%s: %s: %v has no prefix", tt.what, call, err)
				}
			}
		}
		//lint:ignore SA1012 that is what is tested
		for call, err := range all(nil, c[0].Election) { //nolint:staticcheck // that is what is tested
			testkit.Is(t, err, quorumlock.ErrNilContext, "%s with a nil context", call)
		}
		says(t, c[0].Run(t.Context(), nil), "the function is nil: use", "Run without a function")
		testkit.Is(t, c[0].Resign(t.Context()), election.ErrNotLeader, "Resign of nobody")
		for _, s := range servers {
			testkit.Equal(t, s.Ran(), s.Ran("leader"), "scripts that ran at %s", s.Name)
		}
	})
}

func TestRefusals(t *testing.T) {
	elect(t, "of values and contexts", 1, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		term := c[0].leads(t)
		value := strings.Repeat("\x00v\r\n", 64<<10/4)
		testkit.Must(t, term.Proclaim(t.Context(), value), "Proclaim")
		c[0].told(t, value, term.Token())
		says(t, term.Proclaim(t.Context(), value+"v"), "use at most 65536", "Proclaim")
		var none context.Context
		testkit.Is(t, term.Proclaim(none, ""), quorumlock.ErrNilContext, "Proclaim")
		done, cancel := context.WithCancel(t.Context())
		cancel()
		testkit.Is(t, term.Proclaim(done, "x"), context.Canceled, "Proclaim")
		c[0].told(t, value, term.Token())
		testkit.Is(t, term.Resign(none), quorumlock.ErrNilContext, "Resign")
		c[0].nobody(t)
	})
	elect(t, "of a campaign within the own work, which would deadlock, or lead twice", 1, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		term := c[0].leads(t)
		says(t, testkit.Err(c[0].Campaign(term.Context())), "use one that does not", "Campaign")
		c[0].told(t, "0", term.Token())
		resign(t, term)
		lease := testkit.Lock(t, c[0].client.Mutex("job"))
		says(t, testkit.Err(c[0].Campaign(lease.Context())), "use one that does not", "Campaign")
		testkit.Held(t, lease)
		testkit.Unlock(t, lease)
	})
	// If the key of the value has a value of another program, waiting does not help: Campaign returns
	// the fix, and keeps nothing.
	elect(t, "of a key of another program, which is named and not touched", 1, func(t *testing.T, c []*candidate, servers []*embedded.Server) {
		key := wire.LeaderKey("job")
		occupy(t, key, servers[:3]...)
		_, err := c[0].Campaign(t.Context())
		if !errors.Is(err, quorumlock.ErrNotALock) || !strings.Contains(err.Error(), key) {
			t.Errorf("Campaign: %v, want ErrNotALock that names %s", err, key)
		}
		synctest.Wait()
		for _, s := range servers {
			if got, _ := s.Redis.Get(key); s.Redis.Exists("job") || s.Redis.Exists(key) && got != "mine" {
				t.Errorf("%s has %q, %q", s.Name, s.Redis.Keys(), got)
			}
		}
		servers[2].Redis.Del(key) // a minority does no harm
		term := c[0].leads(t)
		c[0].told(t, "0", term.Token())
		resign(t, term)
		testkit.Each(servers[:2], func(s *embedded.Server) { s.Redis.Del(key) })
		occupy(t, "job", servers[:3]...)
		testkit.Is(t, testkit.Err(c[0].Leader(t.Context())), quorumlock.ErrNotALock, "Leader")
		testkit.Is(t, testkit.Err(c[0].Campaign(t.Context())), quorumlock.ErrNotALock, "Campaign")
		testkit.Each(servers, func(s *embedded.Server) { s.Redis.Del("job") })
	})
	elect(t, "are none where nodes fail after the grant: Campaign goes on while the lease lasts", 1, func(t *testing.T, c []*candidate, servers []*embedded.Server) {
		resign(t, c[0].leads(t))
		time.AfterFunc(5*time.Second, killAtProclaim(servers[:3]...))
		began := time.Now()
		term := c[0].leads(t)
		testkit.Took(t, began, 5*time.Second, 7*time.Second, "it leads")
		c[0].told(t, "0", term.Token())
	})
}

// A minority with a wrong permission, or with another value under the key, does not end a campaign
// when another node is down: that node may come back.
func TestCampaignRidesOutAnOutageBesideNodesThatRefuseTheValue(t *testing.T) {
	for name, tt := range map[string]struct {
		refuse func(t *testing.T, s *embedded.Server)
		said   string // the error if one more node refuses
	}{
		"a permission is missing": {func(_ *testing.T, s *embedded.Server) {
			s.Before(func(r embedded.Run) {
				if r.Script == "proclaim" {
					s.Deny("evalsha", "eval")
				}
			})
		}, "NOPERM"},
		"the key is something else": {func(t *testing.T, s *embedded.Server) {
			occupy(t, wire.LeaderKey("job"), s)
		}, quorumlock.ErrNotALock.Error()},
	} {
		elect(t, name, 1, func(t *testing.T, c []*candidate, servers []*embedded.Server) {
			resign(t, c[0].leads(t))
			testkit.Each(servers[:2], func(s *embedded.Server) { tt.refuse(t, s) })
			time.AfterFunc(5*time.Second, killAtProclaim(servers[2]))
			began := time.Now()
			term := c[0].leads(t)
			testkit.Took(t, began, 5*time.Second, 7*time.Second, "it leads")
			c[0].told(t, "0", term.Token())
			resign(t, term)
			time.Sleep(quorumlock.DefaultTTL) // until the keys at the nodes that refuse expire

			tt.refuse(t, servers[2])
			testkit.Each(servers[:2], func(s *embedded.Server) { s.Deny() })
			_, err := c[0].Campaign(t.Context())
			if _, few := errors.AsType[*quorumlock.QuorumError](err); !few || !strings.Contains(err.Error(), tt.said) {
				t.Errorf("Campaign where no quorum takes the value: %v, want a QuorumError that says %q", err, tt.said)
			}
			for _, s := range servers {
				s.Before(nil)
				s.Deny()
				s.Redis.Del(wire.LeaderKey("job"))
			}
			time.Sleep(quorumlock.DefaultTTL)
		})
	}
}
