package node_test

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
)

// tokens are the changing credentials of a user. They expire twelve hours after each call of get.
type tokens struct {
	mu   sync.Mutex
	user string
	now  string
	err  error
}

func (s *tokens) set(now string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now, s.err = now, err
}

func (s *tokens) get(context.Context) (node.Credentials, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return node.Credentials{User: s.user, Password: s.now, Expires: time.Now().Add(12 * time.Hour)}, s.err
}

// renewal is the age of credentials at their renewal: three quarters of the twelve hours, less up
// to an eighth, by the name of the node.
func renewal(n *node.Node) time.Duration {
	name := fnv.New32a()
	_, _ = name.Write([]byte(n.String()))
	return 9*time.Hour - 12*time.Hour/8000*time.Duration(name.Sum32()%1000)
}

// Credentials that outlive their users are renewed as seldom.
func TestDistantExpiriesAreNotRenewed(t *testing.T) {
	for _, years := range []time.Duration{50, 98, 150, 200, 290} {
		testkit.Run(t, fmt.Sprint(int(years)), func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 1)
			var asked atomic.Int32
			n := dial(t, "redis://h", node.WithDialer(servers[0].DialContext), node.WithCredentials(func(context.Context) (node.Credentials, error) {
				asked.Add(1)
				return node.Credentials{Expires: time.Now().Add(years * 365 * 24 * time.Hour)}, nil
			}))
			testkit.Send(t.Context(), n, count("x"))
			before := asked.Load()
			settle(24 * time.Hour)
			testkit.Equal(t, asked.Load()-before, 0, "requests for credentials in a day")
		})
	}
}

// An open connection authenticates again before its credentials expire. A refusal does not end it,
// unless the new credentials work on another connection.
func TestOpenConnectionsAuthenticateAgain(t *testing.T) {
	const ok, wrong = "+OK\r\n", "-WRONGPASS x\r\n"
	for name, tt := range map[string]struct {
		user        string
		err         error  // of the function, at the renewal
		auth, hello string // the replies then; empty: none to AUTH, the ordinary one to HELLO
		want        string // AUTH's arguments then
		later       string // those of the next renewal, when all is well again
		used        int    // connections for calls
	}{
		"accepted":              {"billing", nil, ok, "", "billing two", "", 1},
		"the default user":      {"", nil, ok, "", "two", "", 1},
		"no credentials":        {"billing", io.ErrUnexpectedEOF, ok, "", "", "billing two", 1},
		"refused":               {"billing", nil, wrong, wrong, "billing two, billing two", "billing two", 1}, // the second is go-redis's
		"only when it connects": {"billing", nil, "-ERR unknown command\r\n", "", "billing two", "", 2},
		"no reply":              {"billing", nil, "", "", "billing two", "", 2},
		"the end":               {"billing", nil, ok + hangUp, "", "billing two", "", 2},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			s, secret, auths := newBundles(7), &tokens{user: tt.user, now: "one"}, []string(nil)
			auth, hello, answer := tt.auth, tt.hello, s.answer
			s.answer = func(args []string) string {
				switch {
				case args[0] == "auth":
					auths = append(auths, strings.Join(args[1:], " "))
					return auth
				case args[0] == "hello" && hello != "" && slices.Contains(args, "two"):
					return hello
				case args[0] == "ping":
					return "+PONG\r\n"
				}
				return answer(args)
			}
			n := dial(t, "redis://h", node.WithDialer(s.dial), node.WithCredentials(secret.get))
			call := func() {
				t.Helper()
				testkit.OK(t, testkit.Send(t.Context(), n, acquires(1)...)[0].Err, "Acquire")
			}
			check := func(want string) {
				t.Helper()
				s.mu.Lock()
				defer s.mu.Unlock()
				testkit.Equal(t, strings.Join(auths, ", "), want, "AUTH")
				auths = nil
			}
			call()
			secret.set("two", tt.err)
			settle(renewal(n) - time.Second)
			check("")
			settle(3 * time.Second)
			check(tt.want)
			call()
			secret.set("two", nil)
			s.mu.Lock()
			auth, hello = ok, ""
			s.mu.Unlock()
			settle((12*time.Hour - renewal(n)) * 3 / 4)
			check(tt.later)
			call()
			testkit.Equal(t, s.used, tt.used, "connections")
		})
	}
}

// authTap is a connection that counts AUTHs. If refuses is set, the server refuses these, but not
// HELLO.
type authTap struct {
	net.Conn
	refuses bool
	seen    *atomic.Int32
}

func (c authTap) Write(b []byte) (int, error) {
	const auth, bad = "*3\r\n$4\r\nauth\r\n$7\r\nbilling", "*3\r\n$4\r\nauth\r\n$7\r\nnobody_"
	c.seen.Add(int32(strings.Count(string(b), auth)))
	if c.refuses {
		b = bytes.ReplaceAll(b, []byte(auth), []byte(bad)) // of the same length
	}
	return c.Conn.Write(b)
}

// No call is lost or runs twice, whether AUTH is accepted or the connection is replaced.
func TestCallsGoOnWhileAConnectionAuthenticates(t *testing.T) {
	for name, tt := range map[string]struct {
		refuses bool
		dials   int // with that of the witness, and one that tests the credentials
	}{"accepted": {false, 2}, "refused": {true, 5}} {
		testkit.Run(t, name, func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 1)
			s, secret := servers[0], &tokens{user: "billing", now: "one"}
			s.Redis.RequireUserAuth("billing", "one")
			var seen, dials atomic.Int32
			n := dial(t, "redis://h", node.WithCredentials(secret.get), node.WithDialer(wrapped(s, func(c net.Conn) net.Conn {
				dials.Add(1)
				return authTap{c, tt.refuses, &seen}
			})))
			testkit.Send(t.Context(), n, count("x"))
			s.Delay(10 * time.Millisecond)
			settle(renewal(n) - 100*time.Millisecond)
			const calls = 300
			for range calls {
				time.Sleep(time.Millisecond)
				transport.Of(n).Do(t.Context(), client.Foreground, time.Second, []wire.Call{count("x")}, func(rs []wire.Reply) {
					testkit.OK(t, rs[0].Err, "a call")
				})
			}
			settle(time.Second)
			got, _ := s.Redis.Get("x")
			testkit.Equal(t, got, strconv.Itoa(calls+1), "calls that ran")
			if seen.Load() != 1 || int(dials.Load()) != tt.dials {
				t.Errorf("%d AUTH, %d connections, want 1 and %d", seen.Load(), dials.Load(), tt.dials)
			}
		})
	}
}

// go-redis sends no AUTH on the connection of subscriptions. So it is replaced.
func TestSubscriptionsOutliveTheirCredentials(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
		secret := &tokens{user: "billing", now: "one"}
		s.Redis.RequireUserAuth("billing", "one")
		n := dial(t, "redis://h", node.WithTimeout(5*time.Second), node.WithDialer(s.DialContext), node.WithCredentials(func(ctx context.Context) (node.Credentials, error) {
			select { // as slow as a service that makes tokens
			case <-time.After(2 * time.Second):
				return secret.get(ctx)
			case <-ctx.Done():
				return node.Credentials{}, ctx.Err()
			}
		}))
		e := listen(n, "channel")
		defer e.stop()
		settle(renewal(n) - time.Second)
		e.check(t, "")
		s.Redis.RequireUserAuth("billing", "two")
		secret.set("three", nil) // refused: the connection goes on
		settle(2 * time.Second)
		s.Redis.Publish("channel", "still here")
		e.check(t, "still here")
		secret.set("two", nil)
		settle(time.Minute)
		e.check(t, "") // it may have missed messages
		connections(t, s, 1)
		s.Redis.Publish("channel", "hello")
		e.check(t, "hello")
	})
}
