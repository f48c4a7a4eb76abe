package node_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
)

// faulty is a server that knows no command but scripts, with the test's replies.
type faulty struct {
	reply  string // to a script
	ends   bool   // the connection ends with the first reply to a script
	unsaid string // comes without a script, a second after the handshake
	mute   bool   // there is no reply to the handshake

	mu      sync.Mutex
	dials   int
	scripts int
}

func (f *faulty) dial(context.Context, string, string) (net.Conn, error) {
	f.mu.Lock()
	f.dials++
	f.mu.Unlock()
	here, there := net.Pipe()
	go func() {
		defer there.Close() //nolint:errcheck // the client finds out
		in := bufio.NewReader(there)
		for {
			var args []string
			for range header(in) {
				b := make([]byte, header(in)+2)
				_, _ = io.ReadFull(in, b)
				args = append(args, string(b[:len(b)-2]))
			}
			reply := "-ERR unknown command\r\n"
			switch {
			case len(args) == 0: // the client has gone
				return
			case strings.HasPrefix(args[0], "eval"):
				f.mu.Lock()
				f.scripts++
				f.mu.Unlock()
				reply = f.reply
			case f.mute:
				continue
			case args[0] == "info" && f.unsaid != "":
				time.AfterFunc(time.Second, func() { _, _ = io.WriteString(there, f.unsaid) })
			}
			_, _ = io.WriteString(there, reply) // if the client has gone, the next read ends
			if f.ends && strings.HasPrefix(args[0], "eval") {
				return
			}
		}
	}()
	return here, nil
}

// After any fault of a server or a dialer, a call has one answer: a reply, or the error of its
// node, which names the remedy. Nothing is sent twice, and nothing is left when the node is closed.
func TestFaultsOfServersAndDialers(t *testing.T) {
	good := func() *faulty { return &faulty{reply: ":1\r\n"} }
	for name, tt := range map[string]struct {
		server  *faulty
		dialer  func(release <-chan struct{}) node.Dialer // nil: the server's
		want    string                                    // in the error; empty if there is none
		unsent  bool                                      // the call was not sent, by the error
		scripts int                                       // sent by two calls, one after the other
	}{
		"closes in the middle of a reply":       {server: &faulty{reply: "*3\r\n:1\r\n:17", ends: true}, want: "EOF", scripts: 2},
		"closes before a reply":                 {server: &faulty{reply: "", ends: true}, want: "EOF", scripts: 2},
		"answers twice":                         {server: &faulty{reply: ":1\r\n:1\r\n"}, scripts: 2},
		"a message before the reply":            {server: &faulty{reply: ">2\r\n+message\r\n+x\r\n:1\r\n"}, scripts: 2},
		"a message behind the reply":            {server: &faulty{reply: ":1\r\n>2\r\n+message\r\n+x\r\n"}, scripts: 2},
		"a reply to nobody":                     {server: &faulty{reply: ":1\r\n", unsaid: ":1\r\n"}, scripts: 2},
		"a message to nobody":                   {server: &faulty{reply: ":1\r\n", unsaid: ">1\r\n+x\r\n"}, scripts: 2},
		"a TLS alert":                           {server: &faulty{reply: "\x15\x03\x01\x00\x02\x02\x0a"}, want: "use a rediss:// URL", scripts: 2},
		"no Redis":                              {server: &faulty{reply: "HTTP/1.1 400 Bad Request\r\n"}, want: "is it Redis?", scripts: 2},
		"an integer that is none":               {server: &faulty{reply: ":1x\r\n"}, want: "is it Redis?", scripts: 2},
		"a string without its end":              {server: &faulty{reply: "$1\r\nabc\r\n"}, want: "is it Redis?", scripts: 2},
		"no answer":                             {server: &faulty{reply: ""}, want: "deadline exceeded", scripts: 2},
		"a handshake that never ends":           {server: &faulty{mute: true}, want: "not connected to", unsent: true},
		"a dialer that blocks":                  {server: good(), dialer: blocking, want: "not connected to", unsent: true},
		"a dialer that blocks, then has no use": {server: good(), dialer: blockingInVain, want: "not connected to", unsent: true},
		"a dialer that panics": {server: good(), dialer: func(<-chan struct{}) node.Dialer {
			return func(context.Context, string, string) (net.Conn, error) { panic("oh") }
		}, want: "the dialer panicked: oh", unsent: true},
		"a dialer that returns nothing": {server: good(), dialer: func(<-chan struct{}) node.Dialer {
			return func(context.Context, string, string) (net.Conn, error) { return nil, nil }
		}, want: "neither a connection nor an error", unsent: true},
		"a connection without deadlines": {server: good(), dialer: func(<-chan struct{}) node.Dialer {
			return func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := good().dial(ctx, network, addr)
				return withoutDeadlines{c}, err
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				dialer := tt.server.dial
				if tt.dialer != nil {
					dialer = tt.dialer(release)
				}
				n, err := node.Dial("redis://h", node.WithDialer(dialer))
				if err != nil {
					t.Fatal(err)
				}
				a := newAsked()
				for _, key := range []string{"first", "second"} {
					a.do(n, key, 500*time.Millisecond)
					settle(5 * time.Second)
				}
				for _, key := range []string{"first", "second"} {
					err := a.errs[key]
					if a.answers[key] != 1 || (err != nil) != (tt.want != "") || notSent(err) != tt.unsent {
						t.Errorf("%s: %d answers, %v", key, a.answers[key], err)
					}
					if _, ok := errors.AsType[*quorumlock.NodeError](err); err != nil && (!ok || !strings.Contains(err.Error(), tt.want)) {
						t.Errorf("%s: %v, want a *NodeError with %q", key, err, tt.want)
					}
				}
				if tt.server.scripts != tt.scripts {
					t.Errorf("%d scripts were sent, want %d", tt.server.scripts, tt.scripts)
				}
				if err := n.Close(); err != nil {
					t.Error(err)
				}
				close(release)
			})
		})
	}
}

// blocking returns a dialer that heeds no ctx, and returns a connection in the end.
func blocking(release <-chan struct{}) node.Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		<-release
		return (&faulty{}).dial(ctx, network, addr)
	}
}

// blockingInVain returns a dialer that heeds no ctx, and returns an error in the end.
func blockingInVain(release <-chan struct{}) node.Dialer {
	return func(context.Context, string, string) (net.Conn, error) {
		<-release
		return nil, io.ErrUnexpectedEOF
	}
}

// An unexpected reply means that replies may have been mixed up: the connection is not used again.
func TestAConnectionWithAReplyTooManyIsNotUsedAgain(t *testing.T) {
	for name, f := range map[string]*faulty{
		"with the reply": {reply: ":1\r\n:1\r\n"}, "later": {reply: ":1\r\n", unsaid: ":1\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := dial(t, "redis://h", node.WithDialer(f.dial))
				for range 2 {
					if err := transport.Of(n).Send(t.Context(), count("a"))[0].Err; err != nil {
						t.Error(err)
					}
					settle(5 * time.Second)
				}
				if f.dials != 3 { // and a witness of the first
					t.Errorf("%d connections, want 3", f.dials)
				}
			})
		})
	}
}
