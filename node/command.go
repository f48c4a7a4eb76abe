package node

import (
	"context"
	"io"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/scripts"
)

// command is a script call as go-redis sends it and reads its reply. It is used again and again, so that a call
// allocates nothing here:
//
//   - Args returns pointers into one buffer, where a Cmd would hold a box for every argument;
//   - Write gets the reply as it was sent, where a Cmd would make values of it;
//   - SetErr is called by go-redis when the reply has been read, or cannot be: it gives the reply to its task.
//
// go-redis never sends a RawWriteToCmd a second time.
type command struct {
	*redis.RawWriteToCmd
	task   *task
	index  int // in the task
	script *scripts.Script

	sent  []byte // the arguments, one after the other
	words []word // and where each is
	args  []any  // what Args returns: the verb, the script, and pointers to the words
	reply []byte // as the server sent it
	err   error  // of the connection: there is no reply
	done  bool   // there is a reply, or an error
	again bool   // the node does not know the script: it has not run
	spelt bool   // send the source, not the SHA
	got   bool   // the task has the reply; of the lane's mutex
}

// word is one argument.
type word struct {
	in       *command
	from, to int
}

// MarshalBinary is how go-redis reads an argument.
func (w *word) MarshalBinary() ([]byte, error) { return w.in.sent[w.from:w.to], nil }

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
func (c *command) set(t *task, index int, call *scripts.Call) {
	c.task, c.index, c.script = t, index, call.Script
	c.spelt, c.got = false, false
	c.sent, c.words, c.args = c.sent[:0], c.words[:0], c.args[:0]
	keys, args := call.KeyCount(), call.ArgCount()
	c.sent = strconv.AppendInt(c.sent, int64(keys), 10)
	c.end()
	for i := range keys {
		c.sent = call.AppendKey(c.sent, i)
		c.end()
	}
	for i := range args {
		c.sent = call.AppendArg(c.sent, i)
		c.end()
	}
	c.args = append(c.args, "evalsha", &c.script.SHA)
	for i := range c.words {
		c.args = append(c.args, &c.words[i])
	}
	c.renew()
}

// end ends a word.
func (c *command) end() {
	from := 0
	if n := len(c.words); n > 0 {
		from = c.words[n-1].to
	}
	c.words = append(c.words, word{c, from, len(c.sent)})
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
	c.args[0], c.args[1] = "eval", &c.script.Source
}

// size is how many bytes are sent, roughly.
func (c *command) size() int { return len(c.sent) + 64 }

// Args implements redis.Cmder.
func (c *command) Args() []any { return c.args }

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
