package transport

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// bundle is several calls that are sent as one command: the server runs one script for them, see bundle.lua. For a command
// there is much that a server does beside what it is asked: with 16 calls in a bundle they cost it a fifth less. Their
// replies come as one, so they are all known, or none.
//
// Only a server that stands alone gets bundles: see standsAlone. In a cluster the keys of two locks are at two servers, and a proxy that
// spreads locks over servers would send a bundle to that of the first lock.
type bundle struct {
	*redis.RawWriteToCmd
	received
	lane  *lane
	calls []*command
	spelt bool // the source is sent, not the SHA
}

var (
	_ redis.Cmder   = (*bundle)(nil)
	_ io.Writer     = (*bundle)(nil)
	_ io.ReaderFrom = (*bundle)(nil)
)

const (
	minBundle = 3   // fewer calls cost the server less if they go alone
	maxBundle = 256 // a server with that many is busy for a millisecond
)

func newBundle(l *lane) *bundle {
	b := &bundle{lane: l}
	b.RawWriteToCmd = redis.NewRawWriteToCmd(context.Background(), b, "evalsha")
	return b
}

// pack makes the pipeline of the calls: commands, and what is sent for them. Its last calls are a bundle if the server takes it and
// their scripts can be in one. Nothing is sent behind a bundle: if it is refused, and its calls are sent again, nothing has
// overtaken them.
func (l *lane) pack() {
	alone := len(l.calls)
	for l.link.bundles && alone > 0 && len(l.calls)-alone < maxBundle {
		if c := l.calls[alone-1]; c.script.Letter == 0 || c.spelt {
			break
		}
		alone--
	}
	if len(l.calls)-alone < minBundle {
		alone = len(l.calls)
	}
	l.out, l.cmds = l.out[:0], l.cmds[:0]
	for _, c := range l.calls[:alone] {
		c.bundled = false
		l.out, l.cmds = append(l.out, c.sent...), append(l.cmds, c)
	}
	if alone < len(l.calls) {
		b := l.bundle
		b.calls, b.spelt, l.spell = l.calls[alone:], l.spell, false
		b.renew()
		l.out, l.cmds = b.append(l.out), append(l.cmds, b)
	}
}

// unpacked forgets what was sent: nothing is kept for longer than its task.
func (l *lane) unpacked() {
	clear(l.cmds)
	l.bundle.calls = nil
	l.bundle.received.renew()
}

// append appends what is sent for the bundle.
func (b *bundle) append(out []byte) []byte {
	keys, count := 0, 0
	for _, c := range b.calls {
		c.bundled = true
		keys, count = keys+c.keys, count+c.count-2 // a letter in place of what names the script
	}
	out = appendArray(out, count+3)
	if b.spelt {
		out = appendBulk(appendBulk(out, "eval"), wire.Bundle.Source)
	} else {
		out = appendBulk(appendBulk(out, "evalsha"), wire.Bundle.SHA)
	}
	at := len(out)
	out = closeBulk(strconv.AppendInt(openBulk(out), int64(keys), 10), at)
	for _, c := range b.calls {
		out = append(out, c.sent[c.key:c.arg]...)
	}
	for _, c := range b.calls {
		out = append(out, '$', '3', '\r', '\n', c.script.Letter, '0'+byte(c.keys), '0'+byte(c.count-3-c.keys), '\r', '\n')
		out = append(out, c.sent[c.arg:]...)
	}
	return out
}

// Args implements redis.Cmder. See covered.
func (b *bundle) Args() []any { return coverArgs }

// SetErr is called when the reply has been read. go-redis may call it again.
func (b *bundle) SetErr(err error) {
	if b.done {
		return
	}
	b.done, b.err = true, err
	for _, c := range b.calls {
		c.done, c.err = true, err
	}
	if err == nil {
		b.lane.unpack(b)
	}
}

// Err implements redis.Cmder.
func (b *bundle) Err() error { return b.err }

// unpack gives the replies of a bundle to their tasks. go-redis has just read them.
func (l *lane) unpack(b *bundle) {
	head := strconv.AppendInt(append(l.head[:0], '*'), int64(len(b.calls)), 10)
	l.head = append(head, "\r\n"...)
	if rest, ok := bytes.CutPrefix(b.reply, l.head); ok {
		for _, c := range b.calls {
			var r wire.Reply
			var err error
			r, rest, err = nextReply(rest) // after an error there is no rest, and so no reply for the others
			l.took(c, r, err)
		}
		return
	}
	r, err := parseReply(b.reply)
	switch {
	case err != nil:
	case r.Err == nil, r.Err == redis.Nil: //nolint:errorlint // nothing wraps it
		err = errGarbled
	case says(r.Err, "NOSCRIPT") && !b.spelt:
		l.spell = true
		b.again()
		return
	case slices.ContainsFunc(refusals, func(word string) bool { return says(r.Err, word) }):
		l.link.bundles = false
		b.again()
		return
	case strings.HasPrefix(r.Err.Error(), "ERR "): // perhaps from a proxy that takes no bundles, and says so in its own words
		l.link.bundles = false
	}
	for _, c := range b.calls {
		l.took(c, r, err)
	}
}

// refusals are how the errors begin of a server that has refused a bundle before it ran, and may do so for one of its calls alone, or
// for no call that is sent alone.
var refusals = []string{"NOPERM", "CROSSSLOT", "Error compiling"}

// again has the calls sent again: none has run.
func (b *bundle) again() {
	for _, c := range b.calls {
		c.again = true
	}
}
