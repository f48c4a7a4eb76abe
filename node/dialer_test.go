package node_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
)

// said has the log of go-redis, which the whole program shares.
type said struct{ t *testing.T }

func (s said) Printf(_ context.Context, format string, args ...any) {
	if s.t != nil {
		s.t.Errorf("go-redis says %q", fmt.Sprintf(format, args...))
	}
}

// quietly fails the test if go-redis logs a line before its end. Afterwards the log is silent
// again, as testkit.Main makes it.
func quietly(t *testing.T) {
	redis.SetLogger(said{t})
	t.Cleanup(func() { redis.SetLogger(said{}) })
}

// closedPort is the address of a port at which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	listener := listenAt(t, "tcp", anyPort)
	defer listener.Close() //nolint:errcheck // nobody has connected
	return listener.Addr().String()
}

// A node that is back is used at once: no earlier failure is reported, and dialling does not pause.
func TestANodeThatCannotBeReachedIsAnErrorUntilItIsBackAndNothingOnStderr(t *testing.T) {
	quietly(t)
	addr := closedPort(t)
	n := dial(t, "redis://"+addr, node.WithTimeout(never))
	stop := transport.Of(n).Listen("channel", func(string) { t.Error("something was heard") })
	for range 50 { // more than its pool has connections
		err := testkit.Err(n.Inspect(t.Context(), "x"))
		says(t, "Inspect", err, "node "+addr+": dial tcp "+addr, syscall.ECONNREFUSED.Error())
	}
	stop()
	s := miniredis.NewMiniRedis()
	testkit.Must(t, s.StartAddr(addr), "StartAddr")
	t.Cleanup(s.Close)
	mustAcquire(t, n, alice, 1)
}

// A dial that takes longer than its call goes on. Later calls use its connection, but do not get
// its error.
func TestAFailureToConnectIsNotToldToALaterCall(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
		var slow atomic.Bool
		slow.Store(true)
		n := dial(t, "redis://h", node.WithTimeout(50*time.Millisecond), node.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			if slow.Load() {
				time.Sleep(100 * time.Millisecond)
				return nil, syscall.EHOSTUNREACH
			}
			return s.DialContext(ctx, network, addr)
		}))
		var calls sync.WaitGroup
		for range 8 {
			calls.Go(func() {
				if _, err := transport.Of(n).Inspect(t.Context(), "x"); err == nil {
					t.Error("the server was reached")
				}
			})
		}
		calls.Wait()
		time.Sleep(200 * time.Millisecond) // all that was begun has failed
		slow.Store(false)
		for range 8 {
			testkit.Must(t, testkit.Err(n.Inspect(t.Context(), "x")), "Inspect of a server that can be reached")
		}
	})
}

func TestANodeThatIsKilledAndRestartedLeavesNothingOnStderr(t *testing.T) {
	quietly(t)
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		stop := transport.Of(n).Listen("channel", func(string) {})
		defer stop()
		for range 5 {
			mustAcquire(t, n, alice, 1)
			s.Kill()
			for range 50 {
				_, _ = transport.Of(n).Inspect(t.Context(), "x")
			}
			time.Sleep(time.Second)
			s.Restart(true)
			s.LoseReplies(1)
			_, _ = transport.Of(n).Inspect(t.Context(), "x")
		}
	})
}

// atOnce is a timeout that took no time, like that of a unix socket with a full backlog.
type atOnce struct{}

func (atOnce) Error() string   { return "resource temporarily unavailable" }
func (atOnce) Timeout() bool   { return true }
func (atOnce) Temporary() bool { return true }

func TestADialThatTimesOutAtOnceIsNotTriedAllTheTime(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var dials atomic.Int64
		n := dial(t, "redis://host:6379", node.WithDialer(func(context.Context, string, string) (net.Conn, error) {
			dials.Add(1)
			return nil, atOnce{}
		}))
		for range 10 {
			if _, err := transport.Of(n).Inspect(t.Context(), "x"); err == nil {
				t.Error("it answers")
			}
		}
		if got := dials.Load(); got > 1100 {
			t.Errorf("%d dials in the 10 s of 10 calls", got)
		}
	})
}

// A call may take as long as its timeout, and no longer.
func TestATimeoutMayBeLong(t *testing.T) {
	for name, connect := range map[string]func(t *testing.T, s *embedded.Server, long node.Option) *node.Node{
		"dialled": func(t *testing.T, s *embedded.Server, long node.Option) *node.Node {
			return dial(t, "redis://10.0.0.1:6379", long, node.WithDialer(s.DialContext))
		},
		"the caller's client": func(t *testing.T, s *embedded.Server, long node.Option) *node.Node {
			return over(t, redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Dialer: s.DialContext, ReadTimeout: time.Hour}), long)
		},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 1)
			n := connect(t, servers[0], node.WithTimeout(20*time.Second))
			for _, delay := range []time.Duration{0, 6 * time.Second} { // it connects; then a call takes 12 s
				servers[0].Delay(delay)
				testkit.Must(t, testkit.Err(n.Inspect(t.Context(), "x")), "Inspect")
			}
			servers[0].Stall()
			began := time.Now()
			if _, err := transport.Of(n).Inspect(t.Context(), "x"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 20*time.Second {
				t.Errorf("error %v after %v, want a deadline after 20s", err, time.Since(began))
			}
			servers[0].Resume()
		})
	}
}

// The renewals of a lease need no further connection. A connection that takes long to open costs no
// lease.
func TestRenewalsDoNotWaitForTheirConnection(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
		var acquired atomic.Bool
		n := dial(t, "redis://h", node.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			if acquired.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return s.DialContext(ctx, network, addr)
		}))
		lease := testkit.Lock(t, n.Mutex("x"))
		acquired.Store(true)
		time.Sleep(time.Minute)
		testkit.Held(t, lease)
		testkit.Unlock(t, lease)
	})
}

// A call of a dialer that hangs, whatever its ctx says, takes nothing from the next one.
func TestADialerThatHangsOnceDisablesNothing(t *testing.T) {
	for what, hanging := range map[string]int64{
		"the dialer":      2, // the first call of the lane, and its subscription's
		"the credentials": 3, // and that of the look at the server's settings, which begins with the lane's
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
				release := make(chan struct{})
				var calls atomic.Int64
				hang := func() {
					if calls.Add(1) <= hanging {
						<-release
					}
				}
				opt := node.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
					hang()
					return s.DialContext(ctx, network, addr)
				})
				opts := []node.Option{opt}
				if what != "the dialer" {
					opts = []node.Option{node.WithDialer(s.DialContext), node.WithCredentials(func(context.Context) (node.Credentials, error) {
						hang()
						return node.Credentials{}, nil
					})}
				}
				n := dial(t, "redis://h", opts...)
				heard := make(chan string, 1)
				stop := transport.Of(n).Listen("channel", func(m string) {
					select {
					case heard <- m:
					default:
					}
				})
				defer stop()
				_, _ = transport.Of(n).Inspect(t.Context(), "x") // it may end with the next connect
				testkit.Must(t, testkit.Err(transport.Of(n).Inspect(t.Context(), "x")), "the next call")
				time.Sleep(5 * time.Second)
				if len(heard) == 0 {
					t.Error("the subscription does not come")
				}
				close(release)
			})
		})
	}
}
