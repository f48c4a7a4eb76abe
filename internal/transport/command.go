package transport

import (
	"context"
	"io"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// command is a script call as it is sent, and its reply as it is read. It is reused, so that a call
// allocates nothing here:
//
//   - it has the bytes to send, see covered; go-redis would box every argument;
//   - Write gets the reply as it was sent, where a Cmd would make values of it;
//   - SetErr is called by go-redis when the reply has been read, or cannot be: it gives the reply to its task.
//
// go-redis never sends a RawWriteToCmd a second time.
type command struct {
	*redis.RawWriteToCmd
	task   *task
	index  int // in the task
	script *wire.Script

	sent  []byte // as it goes over the wire
	after int    // where the script ends in sent
	count int    // of all arguments, including those that name the script
	reply []byte // as the server sent it
	err   error  // of the connection: there is no reply
	done  bool   // there is a reply, or an error
	again bool   // the node does not know the script: it has not run
	spelt bool   // the source is sent, not the SHA
	got   bool   // the task has the reply; of the lane's mutex
}

var (
	_ redis.Cmder   = (*command)(nil)
	_ io.Writer     = (*command)(nil)
	_ io.ReaderFrom = (*command)(nil)
)

func newCommand() *command {
	c := &command{}
	c.RawWriteToCmd = redis.NewRawWriteToCmd(context.Background(), c, "evalsha")
	return c
}

// set makes it the command of a call. It keeps nothing of the call.
func (c *command) set(t *task, index int, call *wire.Call) {
	c.task, c.index, c.script = t, index, call.Script
	c.spelt, c.got = false, false
	keys, args := call.KeyCount(), call.ArgCount()
	c.count = 3 + keys + args
	c.sent = appendArray(c.sent[:0], c.count)
	c.sent = appendBulk(c.sent, "evalsha")
	c.sent = appendBulk(c.sent, c.script.SHA)
	c.after = len(c.sent)
	c.sent = closeBulk(strconv.AppendInt(openBulk(c.sent), int64(keys), 10), c.after)
	for i := range keys {
		at := len(c.sent)
		c.sent = closeBulk(call.AppendKey(openBulk(c.sent), i), at)
	}
	for i := range args {
		at := len(c.sent)
		c.sent = closeBulk(call.AppendArg(openBulk(c.sent), i), at)
	}
	c.renew()
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

// renew makes it ready to be sent.
func (c *command) renew() {
	if cap(c.reply) > 1<<16 {
		c.reply = nil
	}
	c.reply, c.err, c.done, c.again = c.reply[:0], nil, false, false
}

// spell makes it send the source of the script.
func (c *command) spell() {
	c.spelt = true
	b := appendArray(nil, c.count)
	b = appendBulk(b, "eval")
	b = appendBulk(b, c.script.Source)
	c.sent, c.after = append(b, c.sent[c.after:]...), len(b)
}

// Args implements redis.Cmder. See covered.
func (c *command) Args() []any { return coverArgs }

// maxKept is how many bytes of a reply are kept. Those of the scripts are far shorter. What is longer cannot be read
// then, but its end is found.
const maxKept = 1 << 20

// Write takes a part of the reply.
func (c *command) Write(b []byte) (int, error) {
	if len(c.reply) < maxKept {
		c.reply = append(c.reply, b...)
	}
	return len(b), nil
}

// ReadFrom takes a part of the reply without a buffer in between.
func (c *command) ReadFrom(r io.Reader) (n int64, err error) {
	if len(c.reply) >= maxKept {
		return io.Copy(io.Discard, r)
	}
	for {
		c.reply = slices.Grow(c.reply, 64)
		m, err := r.Read(c.reply[len(c.reply):cap(c.reply)])
		c.reply = c.reply[:len(c.reply)+m]
		n += int64(m)
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// SetErr is called when the reply has been read. go-redis may call it again.
func (c *command) SetErr(err error) {
	if c.done {
		return
	}
	c.done, c.err = true, err
	if err == nil {
		c.task.lane.took(c)
	}
}

// Err implements redis.Cmder.
func (c *command) Err() error { return c.err }
