package transport

import (
	"bytes"
	"errors"
)

// covered sends the commands of a lane in the form in which they wait, so that no argument is encoded again. go-redis writes
// a short cover for each command, and the connection sends the commands in place of the covers. Everything else that
// go-redis writes, such as its handshake, is sent as it is. The zero value covers nothing.
type covered struct {
	out   []byte // what is to be sent
	bytes int    // of covers that go-redis has yet to write
}

// cover is what go-redis writes for a command with the arguments of coverArgs.
const cover = "*1\r\n$1\r\n!\r\n"

var coverArgs = []any{"!"}

// expect makes the connection send out in place of the covers of that many commands.
func (c *covered) expect(out []byte, commands int) {
	c.out, c.bytes = out, commands*len(cover)
}

var errUncovered = errors.New("go-redis wrote something other than the commands that it was given")

// by returns what to send in place of p, which go-redis writes.
func (c *covered) by(p []byte) ([]byte, error) {
	if c.bytes == 0 {
		if bytes.HasPrefix(p, []byte(cover)) { // of what another connection is to send
			return nil, errUncovered
		}
		return p, nil
	}
	at := (len(cover) - c.bytes%len(cover)) % len(cover) // within the cover that is under way
	for i := range p {
		if i >= c.bytes || p[i] != cover[(at+i)%len(cover)] {
			return nil, errUncovered
		}
	}
	out := c.out
	c.out, c.bytes = nil, c.bytes-len(p)
	return out, nil
}
