package transport

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// command is a script call as it is sent. It is reused, so that a call allocates nothing here.
type command struct {
	task   *task
	index  int // in the task
	script *wire.Script

	sent  []byte // as it goes over the wire
	after int    // where the script ends in sent
	key   int    // where the first key begins
	count int    // of all arguments, including those that name the script

	waiter string // whose call it is; empty for calls that need no order
	begins bool   // see wire.Call.Begins

	// Of the flight that has it.
	spelt   bool // the source is sent, not the SHA
	again   bool // the node has not run it: it does not know the script
	unknown bool // it was so in the flight before

	got bool // the task has the reply; of the lane's mutex
}

// set makes it the command of a call. It keeps nothing of the call but the name of its waiter.
func (c *command) set(t *task, index int, call *wire.Call) {
	c.task, c.index, c.script, c.waiter, c.begins = t, index, call.Script, call.Waiter(), call.Begins()
	c.spelt, c.again, c.unknown, c.got = false, false, false, false
	keys, args := call.KeyCount(), call.ArgCount()
	c.count = 3 + keys + args
	c.sent = appendArray(c.sent[:0], c.count)
	c.sent = appendBulk(c.sent, "evalsha")
	c.sent = appendBulk(c.sent, c.script.SHA)
	c.after = len(c.sent)
	c.sent = closeBulk(strconv.AppendInt(openBulk(c.sent), int64(keys), 10), c.after)
	c.key = len(c.sent)
	for i := range keys {
		at := len(c.sent)
		c.sent = closeBulk(call.AppendKey(openBulk(c.sent), i), at)
	}
	for i := range args {
		at := len(c.sent)
		c.sent = closeBulk(call.AppendArg(openBulk(c.sent), i), at)
	}
}

// appendArray begins a command of n arguments (redis.io, "Redis serialization protocol specification").
func appendArray(b []byte, n int) []byte {
	return append(strconv.AppendInt(append(b, '*'), int64(n), 10), "\r\n"...)
}

func appendBulk(b []byte, s string) []byte {
	at := len(b)
	return closeBulk(append(openBulk(b), s...), at)
}

// openBulk begins an argument, to be appended next. It leaves room for a length of two digits, which most have.
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

// spell makes it send the source of the script.
func (c *command) spell() {
	c.spelt = true
	b := appendArray(nil, c.count)
	b = appendBulk(b, "eval")
	b = appendBulk(b, c.script.Source)
	longer := len(b) - c.after
	c.sent, c.after, c.key = append(b, c.sent[c.after:]...), len(b), c.key+longer
}

// firstKey is the first key, with its length, as it is sent.
func (c *command) firstKey() []byte {
	b := c.sent[c.key:]
	head := bytes.IndexByte(b, '\n') + 1
	n, _ := strconv.Atoi(string(b[1 : head-2])) // set has written it
	return b[:head+n]
}

// whose is the waiter and the lock of the call.
func (c *command) whose() [2]string { return [2]string{c.waiter, string(c.firstKey())} }

func sameKey(c, d *command) bool { return bytes.Equal(c.firstKey(), d.firstKey()) }
