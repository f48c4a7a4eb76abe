package election_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
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
		elect(t, name, 2, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
			ended := c[0].runs(t.Context(), func(ctx context.Context) error {
				<-ctx.Done()
				testkit.Is(t, context.Cause(ctx), election.ErrResigned, "the end of the term")
				time.Sleep(tt.drain)
				return tt.err
			})
			time.Sleep(time.Second)
			second := c[1].queues(t)
			time.Sleep(time.Minute) // the lease is renewed

			began := time.Now()
			over := testkit.Go(func() error { return c[0].client.Shutdown(testkit.Within(t, 2*time.Minute)) })
			<-second
			testkit.Took(t, began, tt.next, tt.next+time.Second, "the next leads")
			testkit.OK(t, <-over, "Shutdown")
			err := <-ended
			if !errors.Is(err, quorumlock.ErrClosed) || errors.Is(err, failed) != (tt.err == failed) || errors.Is(err, context.Canceled) {
				t.Errorf("Run: %v, want ErrClosed, and the error of a drain", err)
			}
		})
	}
}

func TestShutdown(t *testing.T) {
	elect(t, "waits for the leader", 1, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		term := c[0].leads(t)
		time.AfterFunc(5*time.Second, func() {
			testkit.Is(t, term.Err(), election.ErrResigned, "during the shutdown the term says")
			testkit.OK(t, term.Resign(t.Context()), "Resign")
		})
		began := time.Now()
		testkit.OK(t, c[0].client.Shutdown(testkit.Within(t, 2*time.Minute)), "Shutdown")
		testkit.Took(t, began, 5*time.Second, 6*time.Second, "Shutdown")
	})
	elect(t, "ends a campaign that has the lock, but not the value at a quorum yet", 1, func(t *testing.T, c []*candidate, servers []*embedded.Server) {
		resign(t, c[0].leads(t))
		restart := killAtProclaim(servers[:3]...)
		ended := testkit.Go(func() error { return testkit.Err(c[0].Campaign(t.Context())) })
		time.Sleep(time.Second)
		over := testkit.Go(func() error { return c[0].client.Shutdown(testkit.Within(t, 2*time.Minute)) })
		testkit.Is(t, <-ended, quorumlock.ErrClosed, "Campaign")
		restart()
		testkit.OK(t, <-over, "Shutdown")
	})
}

func TestClose(t *testing.T) {
	elect(t, "loses the lease and does not wait for a drain", 1, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		ctx, cancel := context.WithCancel(t.Context())
		term, err := c[0].Campaign(ctx)
		testkit.Must(t, err, "Campaign")
		cancel()
		time.Sleep(time.Second)
		began := time.Now()
		testkit.OK(t, c[0].client.Close(), "Close")
		testkit.Took(t, began, 0, time.Second, "Close")
		testkit.Is(t, term.Resign(t.Context()), quorumlock.ErrLost, "Resign")
		time.Sleep(quorumlock.DefaultTTL)
	})
	elect(t, "lets the lead function take its time after that", 1, func(t *testing.T, c []*candidate, _ []*embedded.Server) {
		ctx, cancel := context.WithCancel(t.Context())
		end := make(chan struct{})
		got := c[0].runs(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			<-end
			return nil
		})
		time.Sleep(time.Second)
		cancel()
		time.Sleep(time.Second)
		began := time.Now()
		testkit.OK(t, c[0].client.Close(), "Close")
		testkit.Took(t, began, 0, time.Second, "Close")
		close(end)
		testkit.Is(t, <-got, context.Canceled, "Run")
		time.Sleep(quorumlock.DefaultTTL)
	})
}
