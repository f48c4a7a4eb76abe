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
	locktest.Bubble(t, func(t *testing.T) {
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
			{"a long value", election.New(client.Mutex("x"), strings.Repeat("v", election.MaxValue+1)), "the value has 65537 bytes: use at most 65536"},
		} {
			errs := all(t.Context(), tt.e)
			errs["Resign"] = tt.e.Resign(t.Context())
			errs["Health"] = tt.e.Health(0)
			if len(errs) != 6 {
				t.Errorf("%s: %d calls have answered", tt.what, len(errs))
			}
			for call, err := range errs {
				if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "quorumlock: ") {
					t.Errorf("%s: %s: %v, want it to say %q", tt.what, call, err, tt.want)
				}
			}
		}
		//lint:ignore SA1012 that is what is tested
		for call, err := range all(nil, c[0].Election) { //nolint:staticcheck // that is what is tested
			if !errors.Is(err, quorumlock.ErrNilContext) {
				t.Errorf("%s with a nil context: %v", call, err)
			}
		}
		if err := c[0].Run(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "the function is nil: use") {
			t.Errorf("Run without a function: %v", err)
		}
		if err := c[0].Resign(t.Context()); !errors.Is(err, election.ErrNotLeader) {
			t.Errorf("Resign of nobody: %v, want ErrNotLeader", err)
		}
		for _, s := range servers {
			if n := s.Ran(); n != s.Ran("leader") {
				t.Errorf("%d scripts ran at %s", n, s.Name)
			}
		}
	})
}

func TestTheLongestValueIsTold(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, _ := start(t, 1)
		term := c[0].leads(t)
		value := strings.Repeat("\x00v\r\n", election.MaxValue/4)
		if err := term.Proclaim(t.Context(), value); err != nil {
			t.Fatal(err)
		}
		c[0].told(t, value, term.Token())
		if err := term.Proclaim(t.Context(), value+"v"); err == nil || !strings.Contains(err.Error(), "use at most 65536") {
			t.Errorf("Proclaim: %v", err)
		}
		//lint:ignore SA1012 that is what is tested
		if err := term.Proclaim(nil, ""); !errors.Is(err, quorumlock.ErrNilContext) { //nolint:staticcheck // that is what is tested
			t.Errorf("Proclaim: %v", err)
		}
		done, cancel := context.WithCancel(t.Context())
		cancel()
		if err := term.Proclaim(done, "x"); !errors.Is(err, context.Canceled) {
			t.Errorf("Proclaim: %v", err)
		}
		c[0].told(t, value, term.Token())
		//lint:ignore SA1012 that is what is tested
		if err := term.Resign(nil); !errors.Is(err, quorumlock.ErrNilContext) { //nolint:staticcheck // that is what is tested
			t.Errorf("Resign: %v", err)
		}
		c[0].nobody(t)
	})
}

// A campaign within the leader's own work would deadlock, or lead twice.
func TestACampaignWithinATermIsRefused(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 1)
		term := c[0].leads(t)
		if _, err := c[0].Campaign(term.Context()); err == nil || !strings.Contains(err.Error(), "use one that does not") {
			t.Errorf("Campaign: %v", err)
		}
		c[0].told(t, "0", term.Token())
		resign(t, term)
		lease := locktest.Lock(t, c[0].client.Mutex("job"))
		if _, err := c[0].Campaign(lease.Context()); err == nil || !strings.Contains(err.Error(), "use one that does not") {
			t.Errorf("Campaign: %v", err)
		}
		locktest.Held(t, lease)
		locktest.Unlock(t, lease)
		locktest.Nothing(t, servers)
	})
}

// If the key of the value has a value of another program, waiting does not help: Campaign returns
// the fix, and keeps nothing.
func TestAKeyThatIsSomethingElseIsNamedAndNotTouched(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 1)
		key := wire.LeaderKey("job")
		for _, s := range servers[:3] {
			if err := s.Redis.Set(key, "mine"); err != nil {
				t.Fatal(err)
			}
		}
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
		for _, s := range servers[:3] {
			s.Redis.Del(key)
		}
		locktest.Each(servers[:2], func(s *embedded.Server) { // a minority does no harm
			if err := s.Redis.Set(key, "mine"); err != nil {
				t.Fatal(err)
			}
		})
		term := c[0].leads(t)
		c[0].told(t, "0", term.Token())
		resign(t, term)
		if err := servers[2].Redis.Set("job", "mine"); err != nil {
			t.Fatal(err)
		}
		locktest.Each(servers[:2], func(s *embedded.Server) { s.Redis.Del(key) })
		locktest.Each(servers[:2], func(s *embedded.Server) {
			if err := s.Redis.Set("job", "mine"); err != nil {
				t.Fatal(err)
			}
		})
		if _, err := c[0].Leader(t.Context()); !errors.Is(err, quorumlock.ErrNotALock) {
			t.Errorf("Leader: %v, want ErrNotALock", err)
		}
		if _, err := c[0].Campaign(t.Context()); !errors.Is(err, quorumlock.ErrNotALock) {
			t.Errorf("Campaign: %v, want ErrNotALock", err)
		}
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
			if err := s.Redis.Set(wire.LeaderKey("job"), "mine"); err != nil {
				t.Fatal(err)
			}
		}, quorumlock.ErrNotALock.Error()},
	} {
		locktest.Run(t, name, func(t *testing.T) {
			c, servers := start(t, 1)
			resign(t, c[0].leads(t))
			locktest.Each(servers[:2], func(s *embedded.Server) { tt.refuse(t, s) })
			down := servers[2]
			down.Before(func(r embedded.Run) {
				if r.Script == "proclaim" {
					down.Kill()
				}
			})
			time.AfterFunc(5*time.Second, func() {
				down.Before(nil)
				down.Restart(true)
			})
			began := time.Now()
			term := c[0].leads(t)
			if took := time.Since(began); took < 5*time.Second || took > 7*time.Second {
				t.Errorf("it leads after %v, want as soon as the node is back", took)
			}
			c[0].told(t, "0", term.Token())
			resign(t, term)
			time.Sleep(quorumlock.DefaultTTL) // until the keys at the nodes that refuse expire

			tt.refuse(t, servers[2])
			locktest.Each(servers[:2], func(s *embedded.Server) { s.Deny() })
			_, err := c[0].Campaign(t.Context())
			if _, few := errors.AsType[*quorumlock.QuorumError](err); !few || !strings.Contains(err.Error(), tt.said) {
				t.Errorf("Campaign where no quorum takes the value: %v, want a QuorumError that says %q", err, tt.said)
			}
			locktest.Each(servers, func(s *embedded.Server) {
				s.Before(nil)
				s.Deny()
			})
		})
	}
}

// Nodes that are down during the write of the value do not make Campaign fail: it continues while
// the lease lasts.
func TestCampaignRidesOutNodesThatFailAfterTheGrant(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 1)
		resign(t, c[0].leads(t))
		locktest.Each(servers[:3], func(s *embedded.Server) {
			s.Before(func(r embedded.Run) {
				if r.Script == "proclaim" {
					s.Kill()
				}
			})
		})
		time.AfterFunc(5*time.Second, func() {
			locktest.Each(servers[:3], func(s *embedded.Server) {
				s.Before(nil)
				s.Restart(true)
			})
		})
		began := time.Now()
		term := c[0].leads(t)
		if took := time.Since(began); took < 5*time.Second || took > 7*time.Second {
			t.Errorf("it leads after %v, want as soon as the nodes are back", took)
		}
		c[0].told(t, "0", term.Token())
		resign(t, term)
	})
}
