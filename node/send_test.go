package node_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
)

// count is a script that shows how often it ran.
func count(key string) wire.Call {
	const source = `return redis.call('incr', KEYS[1])`
	return wire.NewCall(&wire.Script{Source: source}, []string{key})
}

// clients are the ways in which a node may reach a server: dialled, and over clients of the
// caller's that retry.
var clients = map[string]func(t *testing.T, s *embedded.Server) *node.Node{
	"dialled": func(t *testing.T, s *embedded.Server) *node.Node {
		return dial(t, "redis://h", node.WithName(s.Name), node.WithDialer(s.DialContext))
	},
	"the caller's client": func(t *testing.T, s *embedded.Server) *node.Node {
		return over(t, redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Dialer: s.DialContext, MaxRetries: 3}))
	},
	"the caller's client, with deadlines": func(t *testing.T, s *embedded.Server) *node.Node {
		return over(t, redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Dialer: s.DialContext, MaxRetries: 3, ContextTimeoutEnabled: true}))
	},
	"a cluster": func(t *testing.T, s *embedded.Server) *node.Node { return cluster(t, s, false) },
}

// cluster is a node over three addresses of one server.
func cluster(t *testing.T, s *embedded.Server, deadlines bool) *node.Node {
	at := func(addr string) []redis.ClusterNode { return []redis.ClusterNode{{Addr: addr}} }
	return over(t, redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{"10.0.0.1:6379"}, Dialer: s.DialContext, MaxRedirects: 5, ContextTimeoutEnabled: deadlines,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{
				{Start: 0, End: 5000, Nodes: at("10.0.0.1:6379")},
				{Start: 5001, End: 10000, Nodes: at("10.0.0.2:6379")},
				{Start: 10001, End: 16383, Nodes: at("10.0.0.3:6379")},
			}, nil
		}}))
}

// each runs a test with each of some ways to a server.
func each(t *testing.T, ways map[string]func(t *testing.T, s *embedded.Server) *node.Node, test func(t *testing.T, s *embedded.Server, n *node.Node)) {
	for name, connect := range ways {
		testkit.Run(t, name, func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 1)
			test(t, servers[0], connect(t, servers[0]))
		})
	}
}

// over is a node over a client of the test, both closed with it.
func over(t *testing.T, client redis.UniversalClient, opts ...node.Option) *node.Node {
	t.Helper()
	n, err := node.New(client, opts...)
	testkit.Must(t, err, "New")
	t.Cleanup(func() { testkit.OK(t, errors.Join(n.Close(), client.Close()), "Close") })
	return n
}

// lost checks that each reply is the error of a node.
func lost(t *testing.T, replies []wire.Reply) {
	t.Helper()
	for i, r := range replies {
		if _, ok := errors.AsType[*quorumlock.NodeError](r.Err); !ok {
			t.Errorf("reply %d: %v, %v, want a *NodeError", i, r.Value, r.Err)
		}
	}
}

func TestWhatHasNoReplyIsNotSentAgain(t *testing.T) {
	each(t, clients, func(t *testing.T, s *embedded.Server, n *node.Node) {
		for i := 1; i <= 3; i++ {
			if r := testkit.Send(t.Context(), n, count("single"))[0]; r.Err != nil || r.Value != int64(2*i-1) {
				t.Fatalf("healthy: %v, %v", r.Value, r.Err)
			}
			s.LoseReplies(1)
			lost(t, testkit.Send(t.Context(), n, count("single")))
			got, _ := s.Redis.Get("single")
			testkit.Equal(t, got, fmt.Sprint(2*i), "runs of %d scripts", 2*i)
		}
		s.LoseReplies(1)
		lost(t, testkit.Send(t.Context(), n, count("{s}a"), count("{s}b"), count("{s}c")))
		// The first one ran before its reply was lost; later ones may have been cut off.
		for i, key := range []string{"{s}a", "{s}b", "{s}c"} {
			if got, _ := s.Redis.Get(key); got != "1" && (i == 0 || got != "") {
				t.Errorf("%s ran %q times", key, got)
			}
		}
	})
}

func TestScriptsAnUnknowingNodeIsSentTheSource(t *testing.T) {
	each(t, clients, func(t *testing.T, s *embedded.Server, n *node.Node) {
		for i := 1; i <= 3; i++ {
			for j, r := range testkit.Send(t.Context(), n, count("a"), wire.Inspect("x", 100), count("b")) {
				if r.Err != nil || j != 1 && r.Value != int64(i) {
					t.Errorf("round %d, reply %d: %v, %v: it did not run exactly once", i, j, r.Value, r.Err)
				}
			}
			s.FlushScripts()
		}
	})
}

func TestSendReturnsAtItsDeadline(t *testing.T) {
	for what, connected := range map[string]bool{"connected": true, "not connected": false} {
		t.Run(what, func(t *testing.T) {
			each(t, clients, func(t *testing.T, s *embedded.Server, n *node.Node) {
				if connected {
					testkit.Send(t.Context(), n, count("warm"))
				}
				s.Stall()
				began := time.Now()
				replies := testkit.Send(testkit.Within(t, 70*time.Millisecond), n, count("a"), count("b"))
				testkit.Took(t, began, 70*time.Millisecond, 70*time.Millisecond, "Send")
				lost(t, replies)
				for _, r := range replies {
					testkit.Is(t, r.Err, context.DeadlineExceeded, "Send")
				}
				s.Resume()
			})
		})
	}
}

// A handshake takes several round trips. If they take longer than a call may, the connection is
// still made, for later calls.
func TestAConnectionThatTakesLongerThanACallIsMadeAllTheSame(t *testing.T) {
	ways := maps.Clone(clients)
	ways["a cluster"] = func(t *testing.T, s *embedded.Server) *node.Node {
		n := cluster(t, s, true)
		testkit.Send(t.Context(), n, count("a")) // go-redis asks for the commands of a cluster under a mutex, which stops the bubble's clock
		return n
	}
	each(t, ways, func(t *testing.T, s *embedded.Server, n *node.Node) {
		s.Delay(20 * time.Millisecond)                // a round trip takes 40 ms
		for _, key := range []string{"a", "b", "c"} { // each of another server of the cluster
			reached := false
			for tries := 0; tries < 100 && !reached; tries++ {
				reached = testkit.Send(testkit.Within(t, 50*time.Millisecond), n, count(key))[0].Err == nil
			}
			if !reached {
				t.Errorf("no call for %q in five seconds got an answer", key)
			}
		}
	})
}
