package testkit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// recorder is a test that keeps the errors of a check.
type recorder struct {
	testing.TB
	errors []string
}

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// client returns a client of one server, its node and the server, closed at the end of the test.
func client(t *testing.T) (*redlock.Client, *node.Node, *embedded.Server) {
	t.Helper()
	servers, nodes := testkit.Nodes(t, 1)
	return testkit.Of(t, nodes), nodes[0], servers[0]
}

// Each check fails on its own kind of leftover. All pass without leftovers.
func TestNothingFindsWhatIsLeft(t *testing.T) {
	for _, tt := range []struct {
		name  string
		leave func(t *testing.T, c *redlock.Client, n *node.Node, s *embedded.Server)
		want  string // "" if nothing is left
	}{
		{"nothing", func(*testing.T, *redlock.Client, *node.Node, *embedded.Server) {}, ""},
		{"a lock was used", func(t *testing.T, c *redlock.Client, _ *node.Node, _ *embedded.Server) {
			testkit.Unlock(t, testkit.Lock(t, c.Mutex("x")))
		}, ""},
		{"a waiter has come and gone", func(t *testing.T, c *redlock.Client, _ *node.Node, _ *embedded.Server) {
			lease := testkit.Lock(t, c.Mutex("x"))
			_, err := c.Mutex("x").Lock(testkit.Within(t, time.Second))
			testkit.Is(t, err, context.DeadlineExceeded, "Lock of a held lock")
			testkit.Unlock(t, lease)
		}, ""},
		{"a lock is held", func(t *testing.T, c *redlock.Client, _ *node.Node, _ *embedded.Server) {
			testkit.Lock(t, c.Mutex("x"))
		}, `keys are left: ["node-1: x"]`},
		{"a key comes back", func(_ *testing.T, _ *redlock.Client, _ *node.Node, s *embedded.Server) {
			time.AfterFunc(30*time.Second, func() { _ = s.Redis.Set("x", "") })
		}, `keys came back: ["node-1: x"]`},
		{"a call is under way", func(t *testing.T, c *redlock.Client, _ *node.Node, s *embedded.Server) {
			s.Stall()
			go func() { _, _ = c.Mutex("x", quorumlock.WithNodeTimeout(3*time.Second)).TryLock(t.Context()) }()
		}, "goroutines are left"},
		{"a function of the client's runs", func(t *testing.T, _ *redlock.Client, n *node.Node, _ *embedded.Server) {
			end := make(chan struct{})
			t.Cleanup(func() { close(end) })
			testkit.OK(t, transport.Of(n).Locks().Go(func() { <-end }), "Go")
		}, "goroutines are left"},
		{"somebody listens", func(t *testing.T, _ *redlock.Client, n *node.Node, _ *embedded.Server) {
			t.Cleanup(transport.Of(n).Listen("channel", func(string) {}))
		}, "subscriptions are left"},
	} {
		testkit.Run(t, tt.name, func(t *testing.T) {
			c, n, s := client(t)
			tt.leave(t, c, n, s)
			synctest.Wait()
			r := &recorder{TB: t}
			testkit.Nothing(r, []*embedded.Server{s})
			switch said := strings.Join(r.errors, "\n"); {
			case tt.want == "" && said != "":
				t.Errorf("nothing is left, and the check fails: %s", said)
			case !strings.Contains(said, tt.want):
				t.Errorf("the check says %q, want %q", said, tt.want)
			}
		})
	}
}

// All goroutines of the library are found; those of lanes and subscriptions only on request.
func TestGoroutinesOfTheLibraryAreFound(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, n, s := client(t)
		want := func(all, busy, ofCalls int, when string) {
			t.Helper()
			synctest.Wait()
			counts := []int{all, busy, ofCalls}
			for i, found := range [][]string{testkit.AllGoroutines(), testkit.BusyGoroutines(), testkit.Goroutines()} {
				testkit.Equal(t, len(found), counts[i], "%s: %q: count %d", when, found, i+1)
			}
		}
		want(0, 0, 0, "before the first call")
		testkit.Unlock(t, testkit.Lock(t, c.Mutex("x")))
		want(2, 0, 0, "after it: the worker and the reader of a lane wait")

		stop := transport.Of(n).Listen("channel", func(string) {})
		want(4, 2, 0, "with a subscription: its loop and its reader")
		stop()
		want(2, 0, 0, "after it")

		s.Stall()
		tried := testkit.Go(func() error { return testkit.Err(c.Mutex("x").TryLock(t.Context())) })
		want(2, 0, 0, "a call is under way")
		if err := <-tried; err == nil {
			t.Error("a stalled node granted the lock")
		}
		s.Resume()
	})
}

// A node over the caller's own client has no lanes: each call has a goroutine.
func TestGoroutinesOfACallersClientAreFound(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		servers, _ := testkit.Nodes(t, 1)
		own := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Dialer: servers[0].DialContext, ContextTimeoutEnabled: true})
		n, err := node.New(own)
		testkit.Must(t, err, "New")
		defer func() {
			_, _ = n.Close(), own.Close()
		}()
		servers[0].Stall()
		go func() { _, _ = n.Mutex("x").TryLock(t.Context()) }()
		synctest.Wait()
		if found := testkit.Goroutines(); len(found) == 0 {
			t.Error("none is found")
		}
		servers[0].Resume()
	})
}
