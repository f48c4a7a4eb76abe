package node_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
)

// After any fault of a server or a dialer, a call has one answer: a reply, or the error of its
// node, which names the remedy. Nothing is sent twice, and nothing is left when the node is closed.
// After an unexpected reply, replies may be mixed up: its connection is not used again.
func TestFaultsOfServersAndDialers(t *testing.T) {
	good := func() *fake { return scripted(":1\r\n") }
	unsaid := func(text string) *fake {
		f := good()
		f.unsaid = text
		return f
	}
	for name, tt := range map[string]struct {
		server  *fake
		dialer  func(release <-chan struct{}) (net.Conn, error) // nil: the server's
		want    string                                          // in the error; empty if there is none
		unsent  bool                                            // the call was not sent, by the error
		scripts int                                             // sent by two calls, one after the other
		conns   int                                             // and a witness of the first; 0 is any number
	}{
		"closes in the middle of a reply":  {server: scripted("*3\r\n:1\r\n:17" + hangUp), want: "EOF", scripts: 2},
		"closes in the middle of a string": {server: scripted("$5\r\nab" + hangUp), want: "EOF", scripts: 2},
		"closes before a reply":            {server: scripted(hangUp), want: "EOF", scripts: 2},
		"answers twice":                    {server: scripted(":1\r\n:1\r\n"), scripts: 2, conns: 3},
		"a message before the reply":       {server: scripted(">2\r\n+message\r\n+x\r\n:1\r\n"), scripts: 2},
		"a message behind the reply":       {server: scripted(":1\r\n>2\r\n+message\r\n+x\r\n"), scripts: 2},
		"a reply to nobody":                {server: unsaid(":1\r\n"), scripts: 2, conns: 3},
		"a message to nobody":              {server: unsaid(">1\r\n+x\r\n"), scripts: 2},
		"a TLS alert":                      {server: scripted("\x15\x03\x01\x00\x02\x02\x0a"), want: "use a rediss:// URL", scripts: 2},
		"no Redis":                         {server: scripted("HTTP/1.1 400 Bad Request\r\n"), want: "is it Redis?", scripts: 2},
		"an integer that is none":          {server: scripted(":1x\r\n"), want: "is it Redis?", scripts: 2},
		"a string without its end":         {server: scripted("$1\r\nabc\r\n"), want: "is it Redis?", scripts: 2},
		"no answer":                        {server: scripted(""), want: "deadline exceeded", scripts: 2},
		"a handshake that never ends":      {server: &fake{answer: func([]string) string { return "" }}, want: "not connected to", unsent: true},
		"a dialer that blocks": {server: good(), dialer: func(release <-chan struct{}) (net.Conn, error) {
			<-release
			return (&fake{}).dial(context.Background(), "", "")
		}, want: "not connected to", unsent: true},
		"a dialer that blocks, then has no use": {server: good(), dialer: func(release <-chan struct{}) (net.Conn, error) {
			<-release
			return nil, io.ErrUnexpectedEOF
		}, want: "not connected to", unsent: true},
		"a dialer that panics":                   {server: good(), dialer: func(<-chan struct{}) (net.Conn, error) { panic("oh") }, want: "the dialer panicked: oh", unsent: true},
		"a dialer that returns nothing":          {server: good(), dialer: func(<-chan struct{}) (net.Conn, error) { return nil, nil }, want: "neither a connection nor an error", unsent: true},
		"a reply to no call while a write fails": {server: good(), dialer: func(<-chan struct{}) (net.Conn, error) { return timedOut() }, want: "idle timeout"},
		"a connection without deadlines": {server: good(), dialer: func(<-chan struct{}) (net.Conn, error) {
			c, err := good().dial(context.Background(), "", "")
			return withoutDeadlines{c}, err
		}},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			release, dialer := make(chan struct{}), tt.server.dial
			if tt.dialer != nil {
				dialer = func(context.Context, string, string) (net.Conn, error) { return tt.dialer(release) }
			}
			n := dial(t, "redis://h", node.WithDialer(dialer))
			a := newAsked()
			for _, key := range []string{"first", "second"} {
				answer := a.answer(key)
				transport.Of(n).Do(context.Background(), client.Foreground, 500*time.Millisecond, []wire.Call{count(key)}, func(rs []wire.Reply) {
					time.Sleep(10 * time.Millisecond) // a caller may be slow
					answer(rs)
				})
				settle(5 * time.Second)
			}
			for _, key := range []string{"first", "second"} {
				err := a.errs[key]
				if a.answers[key] != 1 || (err != nil) != (tt.want != "") || wire.IsUnsent(err) != tt.unsent {
					t.Errorf("%s: %d answers, %v", key, a.answers[key], err)
				}
				if _, ok := errors.AsType[*quorumlock.NodeError](err); err != nil && (!ok || !strings.Contains(err.Error(), tt.want)) {
					t.Errorf("%s: %v, want a *NodeError with %q", key, err, tt.want)
				}
			}
			if tt.server.scripts != tt.scripts || tt.conns > 0 && len(tt.server.conns) != tt.conns {
				t.Errorf("%d scripts were sent on %d connections, want %d on %d", tt.server.scripts, len(tt.server.conns), tt.scripts, tt.conns)
			}
			mustClose(t, n)
			close(release)
		})
	}
}

// meddled is a connection on which a test replaces the writes of scripts.
type meddled struct {
	net.Conn
	write  func(b []byte) (int, error)
	closes func() // called by Close after such a write; may be nil
	wrote  atomic.Bool
}

func (c *meddled) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "eval") {
		c.wrote.Store(true)
		return c.write(b)
	}
	return c.Conn.Write(b)
}

func (c *meddled) Close() error {
	if c.wrote.Swap(false) && c.closes != nil {
		c.closes()
	}
	return c.Conn.Close()
}

// timedOut is a connection on which writes of scripts fail, after a reply to no call.
func timedOut() (net.Conn, error) {
	f := scripted("")
	c, err := f.dial(context.Background(), "", "")
	return &meddled{Conn: c, write: func([]byte) (int, error) {
		f.say("-ERR idle timeout\r\n")
		return 0, io.ErrClosedPipe
	}}, err
}

// A reply to no call may be taken for that of the first call of a pipeline. None of its calls was
// written, but the others are not sent again: what a reply says of its call may be wrong for all.
func TestCallsBehindAReplyToNoCallAreLost(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := dial(t, "redis://h", node.WithDialer(func(context.Context, string, string) (net.Conn, error) { return timedOut() }))
		a := newAsked()
		for _, key := range []string{"x", "y", "z"} {
			a.do(n, key, 500*time.Millisecond)
		}
		settle(5 * time.Second)
		for key, want := range map[string]string{"x": "idle timeout", "y": "closed pipe", "z": "closed pipe"} {
			if err := a.errs[key]; a.answers[key] != 1 || wire.IsUnsent(err) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %d answers, %v, want %q", key, a.answers[key], err, want)
			}
		}
	})
}

// A NOSCRIPT reply may arrive while the node is being closed.
func TestANoScriptReplyDuringCloseAnswersTheCall(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var n *node.Node
		n = dial(t, "redis://h", node.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			f := scripted("") // a server for this connection only
			c, err := f.dial(ctx, network, addr)
			return &meddled{Conn: c, write: func(b []byte) (int, error) {
				go n.Close() //nolint:errcheck // the cleanup of dial checks Close
				time.Sleep(10 * time.Millisecond)
				return len(b), nil
			}, closes: func() { f.say("-NOSCRIPT unknown\r\n") }}, err
		}))
		a := newAsked()
		a.do(n, "x", 500*time.Millisecond)
		settle(5 * time.Second)
		testkit.Equal(t, a.answers["x"], 1, "answers")
	})
}

// A server that refuses connections, or has too many, does not get a new one for each call. Every
// call returns the server's error. Calls succeed soon after it accepts again.
func TestAServerThatRefusesConnectionsIsSpared(t *testing.T) {
	for _, refusal := range []string{
		"-WRONGPASS invalid username-password pair or user is disabled.",
		"-ERR max number of clients reached",
		"-ERR unknown command 'AUTH', with args beginning with: 's3cret'",
	} {
		testkit.Run(t, refusal, func(t *testing.T) {
			f := scripted(":1\r\n")
			accepts := f.answer
			f.answer = func([]string) string { return refusal + "\r\n" }
			n := dial(t, "redis://:s3cret@h", node.WithDialer(f.dial))
			a := newAsked()
			began := time.Now()
			for time.Since(began) < 10*time.Second {
				a.do(n, "x", time.Second)
				settle(time.Millisecond)
				said, _, _ := strings.Cut(refusal[1:], ",")
				if err := a.errs["x"]; !wire.IsUnsent(err) || !strings.Contains(err.Error(), said) || strings.Contains(err.Error(), "s3cret") {
					t.Fatalf("a call: %v", err)
				}
			}
			if conns := len(f.conns); conns > 150 { // including the witnesses
				t.Errorf("%d connections in 10 s, want at most 150", conns)
			}
			f.mu.Lock()
			f.answer = func(args []string) string {
				if args[0] == "auth" {
					return "+OK\r\n"
				}
				return accepts(args)
			}
			f.mu.Unlock()
			settle(200 * time.Millisecond)
			a.do(n, "y", time.Second)
			settle(time.Second)
			a.answered(t, "y")
		})
	}
}
