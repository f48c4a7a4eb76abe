package transport

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// command is an encoded script call. Its memory is reused, so encoding allocates nothing.
type command struct {
	request *request
	index   int // in the request
	script  *wire.Script

	sent  []byte // the bytes on the wire
	after int    // the end of the script's name or source in sent
	key   int    // the start of the first key in sent
	arg   int    // the end of the keys in sent; valid until sendSource
	keys  int    // number of keys
	count int    // of arguments, including the script and the keys

	waiter string // empty for calls that need no order
	begins bool   // see wire.Call.Begins

	// Used by the goroutine that handles its pipeline.
	sendsSource bool // the source is sent, not the SHA
	resend      bool // the node did not run the call
	wasUnknown  bool // the node did not know the script when this command was last sent

	got bool // the request has the reply; guarded by lane.mu
}

// set encodes a call. It retains only the name of the waiter.
func (c *command) set(t *request, index int, call *wire.Call) {
	c.request, c.index, c.script, c.waiter, c.begins = t, index, call.Script, call.Waiter(), call.Begins()
	c.sendsSource, c.resend, c.wasUnknown, c.got = false, false, false, false
	keys, args := call.KeyCount(), call.ArgCount()
	c.count = 3 + keys + args
	c.sent = appendArray(c.sent[:0], c.count)
	c.sent = appendBulk(c.sent, "evalsha")
	c.sent = appendBulk(c.sent, c.script.SHA())
	c.after = len(c.sent)
	c.sent = closeBulk(strconv.AppendInt(openBulk(c.sent), int64(keys), 10), c.after)
	c.key, c.keys = len(c.sent), keys
	for i := range keys {
		at := len(c.sent)
		c.sent = closeBulk(call.AppendKey(openBulk(c.sent), i), at)
	}
	c.arg = len(c.sent)
	for i := range args {
		at := len(c.sent)
		c.sent = closeBulk(call.AppendArg(openBulk(c.sent), i), at)
	}
}

// appendArray begins a command of n arguments (redis.io, "Redis serialization protocol
// specification").
func appendArray(b []byte, n int) []byte {
	return append(strconv.AppendInt(append(b, '*'), int64(n), 10), "\r\n"...)
}

func appendBulk(b []byte, s string) []byte {
	at := len(b)
	return closeBulk(append(openBulk(b), s...), at)
}

// openBulk begins an argument, with room for a length of two digits. The caller appends the
// argument, and calls closeBulk.
func openBulk(b []byte) []byte { return append(b, "$00\r\n"...) }

// closeBulk ends the argument that begins at b[at].
func closeBulk(b []byte, at int) []byte {
	begins := at + len("$00\r\n")
	n := len(b) - begins
	digit := func(n int) byte { return '0' + byte(n%10) }
	switch {
	case n < 10:
		b[at+1] = digit(n)
		b = slices.Delete(b, at+2, at+3)
	case n < 100:
		b[at+1], b[at+2] = digit(n/10), digit(n)
	case n < 1000:
		b = append(b, 0)
		copy(b[at+4:], b[at+3:])
		b[at+1], b[at+2], b[at+3] = digit(n/100), digit(n/10), digit(n)
	default:
		b = slices.Replace(b, at+1, at+3, strconv.AppendInt(nil, int64(n), 10)...)
	}
	return append(b, "\r\n"...)
}

// sendSource replaces the SHA by the source of the script.
func (c *command) sendSource() {
	c.sendsSource = true
	b := appendArray(nil, c.count)
	b = appendBulk(b, "eval")
	b = appendBulk(b, c.script.Source)
	longer := len(b) - c.after
	c.sent, c.after, c.key = append(b, c.sent[c.after:]...), len(b), c.key+longer
}

// firstKey returns the encoded first key, with its length.
func (c *command) firstKey() []byte {
	b := c.sent[c.key:]
	head := bytes.IndexByte(b, '\n') + 1
	n, _ := strconv.Atoi(string(b[1 : head-2])) // set has written it
	return b[:head+n]
}

// whose returns the waiter and the lock of the call.
func (c *command) whose() [2]string { return [2]string{c.waiter, string(c.firstKey())} }

func sameKey(c, d *command) bool { return bytes.Equal(c.firstKey(), d.firstKey()) }
