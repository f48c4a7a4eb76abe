package node_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
)

// A server may reply with anything: the program must not panic.
func TestAMalformedReplyToASubscriptionDoesNotPanic(t *testing.T) {
	for _, answer := range []string{
		"*0\r\n", "*1\r\n:1\r\n", "*1\r\n$9\r\nsubscribe\r\n", "*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n$1\r\nx\r\n", "*2\r\n$7\r\nmessage\r\n:1\r\n",
		"*3\r\n$7\r\nmessage\r\n:1\r\n:1\r\n", "*1\r\n$4\r\npong\r\n", "*2\r\n$4\r\npong\r\n:1\r\n", "*1\r\n$8\r\npmessage\r\n", ":1\r\n", "$-1\r\n", "*-1\r\n",
	} {
		t.Run(fmt.Sprintf("%q", answer), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var subscribed atomic.Int64
				n := dial(t, "redis://host:6379", node.WithDialer(answering(func(request string) string {
					switch request = strings.ToLower(request); {
					case strings.Contains(request, "subscribe"):
						subscribed.Add(1)
						return answer
					case strings.Contains(request, "hello"):
						return "-ERR unknown command\r\n"
					}
					return "+OK\r\n"
				})))
				e := listen(n, "x")
				time.Sleep(10 * time.Second)
				if got := subscribed.Load(); got == 0 || got > 60 {
					t.Errorf("%d subscriptions in 10 s", got)
				}
				e.check(t)
				e.stop()
			})
		})
	}
}

// broken is a network with connections that a test can make useless.
type broken struct {
	mu    sync.Mutex
	all   []*brokenConn
	fails atomic.Bool // new connections are accepted, and nothing comes
}

type brokenConn struct {
	net.Conn
	hole   atomic.Bool // writes get lost, and nothing arrives
	closed chan struct{}
	once   sync.Once
}

func (b *broken) over(dial node.Dialer) node.Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if b.fails.Load() {
			client, server := net.Pipe()
			go io.Copy(io.Discard, server) //nolint:errcheck // it ends with the pipe
			return client, nil
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &brokenConn{Conn: conn, closed: make(chan struct{})}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.all = append(b.all, c)
		return c, nil
	}
}

func (b *broken) each(f func(*brokenConn)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.all {
		f(c)
	}
}

func (c *brokenConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.hole.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *brokenConn) Write(p []byte) (int, error) {
	if c.hole.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *brokenConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// A firewall may drop a connection without a word.
func TestASubscriptionOverADeadPathIsOpenedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
		var b broken
		n := dial(t, "redis://10.0.0.1:6379", node.WithDialer(b.over(s.DialContext)))
		e := listen(n, "x")
		e.check(t, "")
		time.Sleep(time.Minute)
		e.check(t) // a connection that only answers its PINGs is well
		b.each(func(c *brokenConn) { c.hole.Store(true) })
		time.Sleep(15 * time.Second)
		e.checkMissed(t)
		s.Redis.Publish("x", "told")
		e.check(t, "told")
		e.stop()
	})
}

func TestCloseDoesNotWaitForASubscriptionThatIsOpenedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
		var b broken
		n := dial(t, "redis://10.0.0.1:6379", node.WithDialer(b.over(s.DialContext)))
		e := listen(n, "x")
		e.check(t, "")
		b.fails.Store(true)
		b.each(func(c *brokenConn) { _ = c.Close() })
		time.Sleep(300 * time.Millisecond)
		began := time.Now()
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > node.DefaultTimeout {
			t.Errorf("Close took %v", took)
		}
		e.stop()
	})
}

// A user may be allowed to hear some channels and not others.
func TestAChannelThatIsNotAllowedSilencesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b broken
		n := dial(t, "redis://host:6379", node.WithDialer(b.over(answering(func(request string) string {
			arguments := strings.Split(request, "\r\n")
			switch command := strings.ToLower(arguments[2]); {
			case command == "subscribe" && strings.Contains(request, "forbidden"):
				return "-NOPERM No permissions to access a channel\r\n"
			case command == "subscribe":
				return fmt.Sprintf("*3\r\n$9\r\nsubscribe\r\n$%d\r\n%s\r\n:1\r\n", len(arguments[4]), arguments[4])
			case command == "hello":
				return "-ERR unknown command\r\n"
			}
			return "+OK\r\n"
		}))))
		allowed, forbidden := listen(n, "allowed"), listen(n, "forbidden")
		allowed.check(t, "")
		b.each(func(c *brokenConn) { _ = c.Close() })
		time.Sleep(time.Second)
		allowed.check(t, "")
		forbidden.check(t)
		allowed.stop()
		forbidden.stop()
	})
}

// atOnce is a timeout that took no time, like that of a unix socket with a full backlog.
type atOnce struct{}

func (atOnce) Error() string   { return "resource temporarily unavailable" }
func (atOnce) Timeout() bool   { return true }
func (atOnce) Temporary() bool { return true }

func TestADialThatTimesOutAtOnceIsNotTriedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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

// A call may take as long as its timeout.
func TestATimeoutMayBeLong(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
		n := dial(t, "redis://10.0.0.1:6379", node.WithTimeout(20*time.Second), node.WithDialer(s.DialContext))
		if _, err := transport.Of(n).Inspect(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		s.Delay(6 * time.Second)
		if _, err := transport.Of(n).Inspect(t.Context(), "x"); err != nil {
			t.Error(err)
		}
	})
}

// slowToClose is a connection that takes a while to close, as with TLS.
type slowToClose struct{ net.Conn }

func (c slowToClose) Close() error {
	time.Sleep(50 * time.Millisecond)
	return c.Conn.Close()
}

// Who comes while the connection is closed behind the last listener gets a new one, and only one.
func TestAListenerMayComeAsTheLastOneLeaves(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
		n := dial(t, "redis://10.0.0.1:6379", node.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := s.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return slowToClose{c}, nil
		}))
		for range 5 {
			first := listen(n, "x")
			first.check(t, "")
			first.stop()
			time.Sleep(10 * time.Millisecond)
			second := listen(n, "x")
			time.Sleep(time.Second)
			second.checkMissed(t)
			connections(t, s, 1)
			s.Redis.Publish("x", "once")
			second.check(t, "once")
			second.stop()
			time.Sleep(time.Second)
			connections(t, s, 0)
		}
	})
}

// The other way round: another channel keeps the connection.
func TestANewListenerOfAChannelThatWasLeftIsTold(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		other := listen(n, "other")
		other.check(t, "")
		for range 20 {
			first := listen(n, "x")
			first.checkMissed(t)
			first.stop()
			second := listen(n, "x")
			second.checkMissed(t)
			second.stop()
		}
		other.stop()
	})
}
