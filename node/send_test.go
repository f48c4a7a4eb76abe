package node_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
)

// count is a script that shows how often it ran.
func count(key string) wire.Call {
	const source = `return redis.call('incr', KEYS[1])`
	sum := sha1.Sum([]byte(source))
	return wire.NewCall(&wire.Script{Source: source, SHA: hex.EncodeToString(sum[:])}, []string{key})
}

// clients are the ways in which a node may reach a server: dialled, and over clients of the
// caller's that retry three times and more by default.
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
	"a cluster": func(t *testing.T, s *embedded.Server) *node.Node {
		return over(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"10.0.0.1:6379"}, Dialer: s.DialContext, MaxRedirects: 5,
			ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
				return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: "10.0.0.1:6379"}}}}, nil
			}}))
	},
}

// over is a node over a client of the test, both closed with it.
func over(t *testing.T, client redis.UniversalClient) *node.Node {
	t.Helper()
	n := node.New(client)
	err := transport.Of(n).Err()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(n.Close(), client.Close()); err != nil {
			t.Error(err)
		}
	})
	return n
}

func TestAScriptWhoseReplyIsLostIsNotSentAgain(t *testing.T) {
	for name, connect := range clients {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers, _ := locktest.Nodes(t, 1)
				s, n := servers[0], connect(t, servers[0])
				for i := 1; i <= 3; i++ {
					if r := transport.Of(n).Send(t.Context(), count("single"))[0]; r.Err != nil || r.Value != int64(2*i-1) {
						t.Fatalf("healthy: %v, %v", r.Value, r.Err)
					}
					s.LoseReplies(1)
					r := transport.Of(n).Send(t.Context(), count("single"))[0]
					if _, ok := errors.AsType[*quorumlock.NodeError](r.Err); !ok {
						t.Errorf("a lost reply: %v, %v, want a *NodeError", r.Value, r.Err)
					}
					if got, _ := s.Redis.Get("single"); got != fmt.Sprint(2*i) {
						t.Errorf("after %d scripts it ran %s times", 2*i, got)
					}
				}
			})
		})
	}
}

func TestAPipelineWhoseReplyIsLostIsNotSentAgain(t *testing.T) {
	for name, connect := range clients {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers, _ := locktest.Nodes(t, 1)
				s, n := servers[0], connect(t, servers[0])
				transport.Of(n).Send(t.Context(), count("warm")) // the script is known from here on
				s.LoseReplies(1)
				for i, r := range transport.Of(n).Send(t.Context(), count("a"), count("b"), count("c")) {
					if _, ok := errors.AsType[*quorumlock.NodeError](r.Err); !ok {
						t.Errorf("reply %d: %v, %v, want a *NodeError", i, r.Value, r.Err)
					}
				}
				// The first one ran before its reply was lost; later ones may have been cut off.
				for i, key := range []string{"a", "b", "c"} {
					if got, _ := s.Redis.Get(key); got != "1" && (i == 0 || got != "") {
						t.Errorf("%s ran %q times", key, got)
					}
				}
			})
		})
	}
}

func TestScriptsAnUnknowingNodeIsSentTheSource(t *testing.T) {
	for name, connect := range clients {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers, _ := locktest.Nodes(t, 1)
				n := connect(t, servers[0])
				for i := 1; i <= 3; i++ {
					for j, r := range transport.Of(n).Send(t.Context(), count("a"), wire.Inspect("x", 100), count("b")) {
						if r.Err != nil {
							t.Errorf("round %d, reply %d: %v", i, j, r.Err)
						} else if j != 1 && r.Value != int64(i) {
							t.Errorf("round %d, reply %d: %v: it did not run exactly once", i, j, r.Value)
						}
					}
					if err := n.Client().ScriptFlush(t.Context()).Err(); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// A node that does not know the script is sent its source, and that is a run like any other.
func TestALostReplyToTheSourceOfAScriptIsNotSentAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		s.LoseReplies(1)
		if r := transport.Of(n).Send(t.Context(), count("a"))[0]; r.Err == nil {
			t.Errorf("reply %v", r.Value)
		}
		if got, err := s.Redis.Get("a"); err != nil || got != "1" {
			t.Errorf("the script ran %q times, %v", got, err)
		}
	})
}

func TestRepliesComeInTheOrderOfTheCalls(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		mustAcquire(t, n, alice, 1)
		replies := transport.Of(n).Send(t.Context(),
			wire.Renew("x", alice, ttl), wire.Renew("x", bob, ttl), count("x"), wire.Renew("x", alice, ttl))
		for i, want := range []any{int64(1), int64(0), nil, int64(1)} {
			if got := replies[i].Value; got != want || (replies[i].Err != nil) != (want == nil) {
				t.Errorf("reply %d: %v, %v, want %v", i, got, replies[i].Err, want)
			}
		}
	})
}

func TestSendReturnsAtItsDeadline(t *testing.T) {
	for name, connect := range clients {
		for what, connected := range map[string]bool{"connected": true, "not connected": false} {
			t.Run(name+", "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					servers, _ := locktest.Nodes(t, 1)
					s, n := servers[0], connect(t, servers[0])
					if connected {
						transport.Of(n).Send(t.Context(), count("warm"))
					}
					s.Stall()
					ctx, cancel := context.WithTimeout(t.Context(), 70*time.Millisecond)
					defer cancel()
					start := time.Now()
					for _, r := range transport.Of(n).Send(ctx, count("a"), count("b")) {
						if e, ok := errors.AsType[*quorumlock.NodeError](r.Err); !ok || !errors.Is(e, context.DeadlineExceeded) {
							t.Errorf("reply %v, %v, want a deadline of this node", r.Value, r.Err)
						}
					}
					if took := time.Since(start); took != 70*time.Millisecond {
						t.Errorf("it took %v, want 70ms", took)
					}
					s.Resume()
				})
			})
		}
	}
}

func TestSendToANodeThatIsDownFailsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		s.Kill()
		start := time.Now()
		r := transport.Of(n).Send(t.Context(), count("a"))[0]
		if e, ok := errors.AsType[*quorumlock.NodeError](r.Err); !ok || e.Node != "node-1" {
			t.Errorf("error %v, want one of node-1", r.Err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}
