package embedded_test

import (
	"io"
	"net"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
)

// Whatever connects to a port of a developer's machine, the others are served.
func TestWhatIsNoRequestEndsItsConnection(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err, "Listen")
	s := embedded.Start("")
	served := make(chan struct{})
	go func() { defer close(served); s.Serve(l) }()
	for _, text := range []string{
		"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", "PING\r\n", "\r\n", "*x\r\n", "*-1\r\n", "*1048577\r\n", "*99999999999999999999\r\n",
		"*1\r\n$-1\r\n", "*1\r\n$536870913\r\n", "*1\r\n*1\r\n", string(make([]byte, 2<<20)),
	} {
		c, err := net.Dial("tcp", l.Addr().String())
		testkit.Must(t, err, "Dial")
		_, _ = io.WriteString(c, text) // the server may close before the end
		// A reset is an end, too: the server had not read everything.
		if answer, _ := io.ReadAll(c); len(answer) > 0 {
			t.Errorf("the answer to %.30q is %q", text, answer)
		}
		_ = c.Close()
	}
	client := redis.NewClient(&redis.Options{Addr: l.Addr().String()})
	testkit.OK(t, client.Ping(t.Context()).Err(), "PING")
	testkit.OK(t, client.Close(), "Close")
	testkit.OK(t, l.Close(), "Close of the listener")
	s.Close()
	<-served
}

// A client may be stopped in the middle of its work, and read no replies.
func TestServeEndsWithAClientThatReadsNothing(t *testing.T) {
	l, s, served := make(pipes, 1), embedded.Start(""), make(chan struct{})
	go func() { defer close(served); s.Serve(l) }()
	c, outer := net.Pipe()
	l <- outer
	_, err := io.WriteString(c, "*1\r\n$4\r\nPING\r\n")
	testkit.Must(t, err, "PING")
	_, err = c.Read(make([]byte, 1)) // a pipe has no buffer: the rest of the reply waits
	testkit.Must(t, err, "the first byte of the reply")
	testkit.OK(t, l.Close(), "Close of the listener")
	s.Close()
	<-served
}

// pipes is a listener for the pipes that it receives.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error { close(p); return nil }

func (pipes) Addr() net.Addr { return &net.TCPAddr{} }
