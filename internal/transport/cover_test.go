package transport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// Arguments of every length are sent as Redis reads them.
func TestACommandIsSentAsRedisReadsIt(t *testing.T) {
	script := &wire.Script{Source: strings.Repeat("s", 12_345), SHA: strings.Repeat("a", 40)}
	for _, n := range []int{0, 1, 9, 10, 42, 99, 100, 101, 999, 1000, 123_456} {
		arg, key := strings.Repeat("x", n), strings.Repeat("k", n/2)
		call := wire.NewCall(script, []string{key}, arg, "last")
		c := newCommand()
		for range 2 { // it is used again
			c.set(nil, 0, &call)
			want := fmt.Sprintf("*6\r\n$7\r\nevalsha\r\n$40\r\n%s\r\n$1\r\n1\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n$4\r\nlast\r\n", script.SHA, len(key), key, n, arg)
			if string(c.sent) != want {
				t.Errorf("an argument of %d bytes: %.200q, want %.200q", n, c.sent, want)
			}
			c.spell()
			want = fmt.Sprintf("*6\r\n$4\r\neval\r\n$12345\r\n%s\r\n$1\r\n1\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n$4\r\nlast\r\n", script.Source, len(key), key, n, arg)
			if string(c.sent) != want {
				t.Errorf("an argument of %d bytes, with the source: %.200q, want %.200q", n, c.sent, want)
			}
		}
	}
}

// sink is a connection that keeps what is written to it.
type sink struct {
	net.Conn
	bytes.Buffer
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	return s.Buffer.Write(p)
}

func (s *sink) Read(p []byte) (int, error) { return s.Buffer.Read(p) }

// Covered commands are sent once, however go-redis cuts the covers into pieces. Everything else is sent as it is.
func TestCoveredCommandsAreSentOnce(t *testing.T) {
	for cut := 1; cut <= 3*len(cover); cut++ {
		s := &sink{}
		b := bound(s, nil).(*bounded)
		write := func(p string, size int) {
			for p != "" {
				n, err := b.Write([]byte(p[:min(size, len(p))]))
				if err != nil || n == 0 {
					t.Fatalf("%d bytes of %q: %v", n, p, err)
				}
				p = p[n:]
			}
		}
		write("HELLO", cut)
		b.covered.expect([]byte(" one two three"), 3)
		write(strings.Repeat(cover, 3), cut)
		write(" PING", cut)
		b.covered.expect([]byte(" four"), 1)
		write(cover, cut)
		if got := s.String(); got != "HELLO one two three PING four" {
			t.Errorf("in pieces of %d: sent %q", cut, got)
		}
	}
}

// If go-redis writes something else, nothing is sent in its place.
func TestNothingIsSentInPlaceOfAnotherCommand(t *testing.T) {
	for _, other := range []string{"*1\r\n$4\r\nPING\r\n", cover + "PING", cover + cover + "P", cover + cover + cover, "P"} {
		s := &sink{}
		b := bound(s, nil).(*bounded)
		b.covered.expect([]byte("commands"), 2)
		if n, err := b.Write([]byte(other)); err != errUncovered || n != 0 {
			t.Errorf("%q: %d, %v, want an error", other, n, err)
		}
		if s.Len() > 0 {
			t.Errorf("%q: sent %q", other, s.String())
		}
	}
}

// A cover is never sent itself, though the connection was not told what it stands for.
func TestACoverIsNeverSent(t *testing.T) {
	s := &sink{}
	b := bound(s, nil).(*bounded)
	if n, err := b.Write([]byte(cover + cover)); err != errUncovered || n != 0 || s.Len() > 0 {
		t.Errorf("%d, %v, sent %q, want an error", n, err, s.String())
	}
}

func TestAWriteThatFailsIsToldToGoRedis(t *testing.T) {
	b := bound(&sink{err: io.ErrClosedPipe}, nil).(*bounded)
	b.covered.expect([]byte("commands"), 1)
	if n, err := b.Write([]byte(cover)); n != 0 || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%d, %v, want no byte and the error", n, err)
	}
}
