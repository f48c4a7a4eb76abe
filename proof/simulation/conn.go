package simulation

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// conn is a client's end of a connection to a node. A written request is taken at once; replies are
// appended to in. The world's mutex guards all of it.
type conn struct {
	path *path
	id   int
	cond *sync.Cond

	out     []byte // an incomplete request
	in      []byte
	err     error // the error of Read after in; nil while the connection stands
	closed  bool  // by the client
	dark    bool  // a message was lost: nothing arrives any more, and nobody is notified
	waiting int   // requests that are not answered
	// Requests that have not run: requests sent now on another connection may overtake them.
	coming int
	// Scripts that the node did not know, until all their replies have come.
	unknown  int
	channels map[string]bool
	deadline time.Time
	alarm    *time.Timer

	lastThere, lastBack time.Time // when the latest message arrives: none overtakes another
	read                time.Time // when a thawed node runs the latest message
}

func newConn(p *path) *conn {
	p.world.conns++
	return &conn{path: p, id: p.world.conns, cond: sync.NewCond(&p.world.mu)}
}

// Write implements net.Conn. It never blocks.
func (c *conn) Write(b []byte) (int, error) {
	w := c.path.world
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.waiting == 0 && c.path.refuses() {
		c.reset()
	}
	if c.closed || c.err != nil {
		return 0, io.ErrClosedPipe
	}
	rest := b
	if len(c.out) > 0 {
		c.out = append(c.out, b...)
		rest = c.out
	}
	for {
		args, n := request(rest)
		if n == 0 {
			c.out = append(c.out[:0], rest...)
			return len(b), nil
		}
		rest = rest[n:]
		c.path.request(c, args)
	}
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	w := c.path.world
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(c.in) == 0 {
		switch {
		case c.closed:
			return 0, net.ErrClosed
		case c.err != nil:
			return 0, c.err
		case !c.deadline.IsZero() && !time.Now().Before(c.deadline):
			return 0, os.ErrDeadlineExceeded
		case !c.deadline.IsZero() && c.alarm == nil:
			c.alarm = time.AfterFunc(time.Until(c.deadline), c.wake)
		case !c.deadline.IsZero():
			c.alarm.Reset(time.Until(c.deadline))
		}
		c.cond.Wait()
	}
	if c.alarm != nil {
		c.alarm.Stop()
	}
	n := copy(b, c.in)
	c.in = c.in[n:]
	return n, nil
}

func (c *conn) wake() {
	c.path.world.mu.Lock()
	defer c.path.world.mu.Unlock()
	c.cond.Broadcast()
}

// introduce returns the reply to a HELLO, CLIENT or INFO command. A server without HELLO gets no
// bundles.
func (c *conn) introduce(args []string) string {
	switch {
	case strings.EqualFold(args[0], "info"):
		said := fmt.Sprintf("redis_mode:standalone\r\nrun_id:%v\r\n", c.path.node)
		return fmt.Sprintf("$%d\r\n%s\r\n", len(said), said)
	case strings.EqualFold(args[0], "hello"):
		if !c.path.world.plan.Bundles {
			break
		}
		return fmt.Sprintf("*4\r\n$2\r\nid\r\n:%d\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n", c.id)
	case strings.EqualFold(args[1], "id"):
		return fmt.Sprintf(":%d\r\n", c.id)
	}
	return "-ERR unknown command\r\n"
}

// take gives the client bytes to read. It is called with the world's mutex held.
func (c *conn) take(b []byte) {
	c.in = append(c.in, b...)
	c.cond.Broadcast()
}

// reset ends the connection of a server that is gone. It is called with the world's mutex held.
func (c *conn) reset() {
	c.path.trouble()
	c.cut()
}

// cut ends the connection for the client. It is called with the world's mutex held.
func (c *conn) cut() {
	c.err = io.EOF
	c.end()
}

func (c *conn) end() {
	if c.waiting > 0 {
		c.path.unanswered = time.Now()
	}
	delete(c.path.conns, c)
	if c.alarm != nil {
		c.alarm.Stop()
	}
	c.cond.Broadcast()
}

// Close implements net.Conn. Sent requests still arrive.
func (c *conn) Close() error {
	c.path.world.mu.Lock()
	defer c.path.world.mu.Unlock()
	c.closed = true
	if c.coming > 0 || c.unknown > 0 {
		c.path.trouble()
	}
	c.end()
	return nil
}

// SetDeadline implements net.Conn. A Write never waits.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.path.world.mu.Lock()
	defer c.path.world.mu.Unlock()
	if c.deadline = t; !t.IsZero() {
		// The nodes of a call have one deadline. The library sees it node by node only for the sake
		// of the trace.
		c.deadline = instant(t).Add(time.Duration(c.path.node.number) * time.Microsecond)
	}
	c.cond.Broadcast()
	return nil
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return address{} }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return address{} }

type address struct{}

func (address) Network() string { return "simulated" }
func (address) String() string  { return "simulated" }

// request reads an array of bulk strings, and returns its length in bytes; 0 if it is not complete.
func request(b []byte) (args []string, length int) {
	count, at := number(b, 0, '*')
	if at == 0 {
		return nil, 0
	}
	args = make([]string, 0, count)
	text := string(b) // one for all
	for range count {
		size, from := number(b, at, '$')
		if from == 0 || from+size+2 > len(b) {
			return nil, 0
		}
		args = append(args, text[from:from+size])
		at = from + size + 2
	}
	return args, at
}

func number(b []byte, at int, kind byte) (n, next int) {
	end := bytes.IndexByte(b[min(at, len(b)):], '\n')
	if end < 2 {
		return 0, 0
	}
	if b[at] != kind {
		panic("a request that is not an array of bulk strings: " + strconv.Quote(string(b[at:])))
	}
	n, err := strconv.Atoi(string(b[at+1 : at+end-1]))
	if err != nil {
		panic(err)
	}
	return n, at + end + 1
}
