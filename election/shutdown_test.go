package election_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// Shutdown ends the context of a leader, which may have no other end.
func TestShutdownResignsAndTheLeaderDrains(t *testing.T) {
	failed := errors.New("the drain failed")
	for name, tt := range map[string]struct {
		drain time.Duration
		err   error         // of the lead function
		next  time.Duration // from Shutdown until the next leader
	}{
		"at once":                  {0, nil, 0},
		"within a TTL":             {8 * time.Second, nil, 8 * time.Second},
		"with an error":            {time.Second, failed, time.Second},
		"for longer than it has":   {time.Minute, nil, quorumlock.DefaultTTL},
		"the error of the context": {0, context.Canceled, 0},
	} {
		locktest.Run(t, name, func(t *testing.T) {
			c, servers := start(t, 2)
			ended := make(chan error, 1)
			go func() {
				ended <- c[0].Run(t.Context(), func(ctx context.Context) error {
					<-ctx.Done()
					if cause := context.Cause(ctx); !errors.Is(cause, election.ErrResigned) {
						t.Errorf("the term ended with %v, want ErrResigned", cause)
					}
					time.Sleep(tt.drain)
					return tt.err
				})
			}()
			time.Sleep(time.Second)
			second := c[1].queues(t)
			time.Sleep(time.Minute) // the lease is renewed

			began := time.Now()
			over := make(chan error, 1)
			go func() { over <- c[0].client.Shutdown(within(t, 2*time.Minute)) }()
			term := <-second
			if took := time.Since(began); took < tt.next || took > tt.next+time.Second {
				t.Errorf("the next leads after %v, want %v", took, tt.next)
			}
			if err := <-over; err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			err := <-ended
			if !errors.Is(err, quorumlock.ErrClosed) || errors.Is(err, failed) != (tt.err == failed) || errors.Is(err, context.Canceled) {
				t.Errorf("Run: %v, want ErrClosed, and the error of a drain", err)
			}
			resign(t, term)
			locktest.Nothing(t, servers)
		})
	}
}

func TestShutdownWaitsForTheLeader(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := start(t, 1)
		term := c[0].leads(t)
		time.AfterFunc(5*time.Second, func() {
			if err := term.Err(); !errors.Is(err, election.ErrResigned) {
				t.Errorf("during the shutdown the term says %v, want ErrResigned", err)
			}
			resign(t, term)
		})
		began := time.Now()
		if err := c[0].client.Shutdown(within(t, 2*time.Minute)); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("Shutdown took %v", took)
		}
		locktest.Nothing(t, servers)
	})
}

// The lock is won, but the value is not at a quorum yet: no caller has the term.
func TestShutdownEndsACampaignThatHasTheLock(t *testing.T) {
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
		ended := make(chan error, 1)
		go func() {
			_, err := c[0].Campaign(t.Context())
			ended <- err
		}()
		time.Sleep(time.Second)
		over := make(chan error, 1)
		go func() { over <- c[0].client.Shutdown(within(t, 2*time.Minute)) }()
		if err := <-ended; !errors.Is(err, quorumlock.ErrClosed) {
			t.Errorf("Campaign: %v, want ErrClosed", err)
		}
		locktest.Each(servers[:3], func(s *embedded.Server) {
			s.Before(nil)
			s.Restart(true)
		})
		if err := <-over; err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		locktest.Nothing(t, servers)
	})
}
