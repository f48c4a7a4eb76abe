package redlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

func TestHealthySaysHowManyMoreNodesMayFail(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 5, quorumlock.WithQuorum(4))
		for down, want := range []int{1, 0, -1, -2} {
			if down > 0 {
				servers[down-1].Kill()
			}
			r, err := c.Ready(t.Context())
			if r.MayFail() != want || r.Ready() != 5-down || r.Quorum != 4 {
				t.Errorf("with %d down: %d may fail, %d are ready, quorum %d; want %d may fail", down, r.MayFail(), r.Ready(), r.Quorum, want)
			}
			if _, few := errors.AsType[*quorumlock.QuorumError](err); few != (want < 0) || (err != nil) != few {
				t.Errorf("with %d down: error %v", down, err)
			}
			for i, n := range r.Nodes {
				if n.Node != servers[i].Name || (n.Err != nil) != (i < down) {
					t.Errorf("with %d down: node %d is %+v", down, i, n)
				}
			}
		}
	})
}

func TestHealthyNoticesANodeThatWouldNotGrant(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(s *embedded.Server)
		opts  []quorumlock.Option
		want  string
	}{
		"down":                   {(*embedded.Server).Kill, nil, "connection refused"},
		"frozen":                 {(*embedded.Server).Stall, nil, "deadline exceeded"},
		"a password is wanted":   {func(s *embedded.Server) { s.Redis.RequireAuth("s3cret") }, nil, "NOAUTH"},
		"out of memory":          {refuse("OOM command not allowed when used memory > 'maxmemory'."), nil, "OOM"},
		"a replica":              {refuse("READONLY You can't write against a read only replica."), nil, "READONLY"},
		"restarted, and guarded": {func(s *embedded.Server) { s.Restart(true) }, []quorumlock.Option{guarded}, quorumlock.ErrQuarantined.Error()[len("quorumlock: "):]},
	} {
		locktest.Run(t, name, func(t *testing.T) {
			client, servers := locktest.Client(t, 3, c.opts...)
			longUp()
			if r, err := client.Ready(t.Context()); err != nil || r.MayFail() != 1 {
				t.Fatalf("before: %+v, %v", r, err)
			}
			c.spoil(servers[1])
			// The first call finds the connection of a restarted server dead.
			_, _ = client.Ready(t.Context())
			r, err := client.Ready(t.Context())
			if err != nil || r.MayFail() != 0 {
				t.Errorf("%+v, %v; want a quorum that has no node to spare", r, err)
			}
			if err := r.Nodes[1].Err; err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if _, ok := errors.AsType[*quorumlock.NodeError](r.Nodes[1].Err); !ok {
				t.Errorf("%T is no NodeError", r.Nodes[1].Err)
			}
			servers[1].Refuse("")
			servers[1].Resume()
		})
	}
}

// refuse makes a server refuse scripts with the error of a real server.
func refuse(with string) func(*embedded.Server) {
	return func(s *embedded.Server) { s.Refuse(with) }
}

func TestHealthyChangesNothing(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3, quorumlock.WithPrefix("a:"))
		for range 3 {
			if _, err := c.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		locktest.Nothing(t, servers)
		const key = "quorumlock_queue:{a:quorumlock-ready}"
		if err := servers[0].Redis.Set(key, "somebody's"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Ready(t.Context()); err != nil {
			t.Error(err)
		}
		if v, err := servers[0].Redis.Get(key); v != "somebody's" || err != nil {
			t.Errorf("a key that was there is %q, %v now", v, err)
		}
		servers[0].Redis.Del(key)
	})
}

func TestHealthyEndsWithItsContext(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		locktest.Each(servers, (*embedded.Server).Stall)
		ctx, cancel := context.WithTimeout(t.Context(), 70*time.Millisecond)
		defer cancel()
		began := time.Now()
		r, err := c.Ready(ctx)
		if took := time.Since(began); took != 70*time.Millisecond || !errors.Is(err, context.DeadlineExceeded) || r.MayFail() != -2 {
			t.Errorf("%+v, %v after %v, want the deadline after 70ms", r, err, took)
		}
		locktest.Each(servers, (*embedded.Server).Resume)
	})
}

func TestHealthyRefusesWhatItCannotWorkWith(t *testing.T) {
	c, _ := locktest.Client(t, 3)
	var none context.Context
	if _, err := c.Ready(none); !errors.Is(err, quorumlock.ErrNilContext) {
		t.Errorf("%v, want ErrNilContext", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Ready(t.Context()); !errors.Is(err, quorumlock.ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
}
