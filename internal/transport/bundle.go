package transport

import (
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// A bundle is several calls that are sent as one command: the server runs one script for them, see bundle.lua. For a command
// there is much that a server does beside what it is asked: with 16 calls in a bundle they cost it a fifth less. Their
// replies come as one.
//
// Only a server that stands alone gets bundles: see standsAlone. In a cluster the keys of two locks are at two servers, and a proxy that
// spreads locks over servers would send a bundle to that of the first lock.
const (
	minBundle = 3   // fewer calls cost the server less if they go alone
	maxBundle = 256 // a server with that many is busy for a millisecond
)

// pack makes the bytes of a flight. Its last calls are a bundle if the server takes it and their scripts can be in one. Nothing is sent
// behind a bundle: if it is refused, and its calls are sent again, nothing of the flight has overtaken them.
func (f *flight) pack() {
	f.alone = len(f.calls)
	for f.bundles && f.alone > 0 && len(f.calls)-f.alone < maxBundle {
		if c := f.calls[f.alone-1]; c.script.Letter == 0 || c.spelt {
			break
		}
		f.alone--
	}
	if len(f.calls)-f.alone < minBundle {
		f.alone = len(f.calls)
	}
	for i, c := range f.calls {
		if c.bundled = i >= f.alone; !c.bundled {
			f.out = append(f.out, c.sent...)
		}
	}
	if f.alone < len(f.calls) {
		f.packBundle(f.calls[f.alone:])
	}
}

func (f *flight) packBundle(calls []*command) {
	keys, count := 0, 0
	for _, c := range calls {
		keys, count = keys+c.keys, count+c.count-2 // a letter in place of what names the script
	}
	out := appendArray(f.out, count+3)
	if f.source {
		out = appendBulk(appendBulk(out, "eval"), wire.Bundle.Source)
	} else {
		out = appendBulk(appendBulk(out, "evalsha"), wire.Bundle.SHA)
	}
	at := len(out)
	out = closeBulk(strconv.AppendInt(openBulk(out), int64(keys), 10), at)
	for _, c := range calls {
		out = append(out, c.sent[c.key:c.arg]...)
	}
	for _, c := range calls {
		out = append(out, '$', '3', '\r', '\n', c.script.Letter, '0'+byte(c.keys), '0'+byte(c.count-3-c.keys), '\r', '\n')
		out = append(out, c.sent[c.arg:]...)
	}
	f.out = out
}

// unpack reads the reply to a bundle, which is an array of the replies to its calls, or an error of all.
func (l *lane) unpack(k *connection, f *flight) error {
	calls := f.calls[f.alone:]
	kind, n, line, err := k.replies.open()
	switch {
	case err != nil:
		return err
	case kind == '*' && n == int64(len(calls)):
		for _, c := range calls {
			r, err := k.replies.reply()
			if err != nil {
				return err
			}
			l.took(k, f, c, r)
			f.taken++
		}
		return nil
	}
	r, err := k.replies.rest(kind, n, line)
	switch {
	case err != nil:
		return err
	case r.Err == nil, r.Err == redis.Nil: //nolint:errorlint // nothing wraps it
		return errGarbled
	}
	f.taken = len(f.calls)
	unknown := says(r.Err, "NOSCRIPT") && !f.source
	refused := slices.ContainsFunc(refusals, func(word string) bool { return says(r.Err, word) })
	l.mu.Lock()
	l.source = l.source || unknown
	if refused || !unknown && strings.HasPrefix(r.Err.Error(), "ERR ") { // perhaps from a proxy that takes no bundles, and says so in its own words
		k.bundles = false
	}
	l.mu.Unlock()
	for _, c := range calls {
		if unknown || refused {
			c.again, f.again = true, true
		} else {
			l.took(k, f, c, r)
		}
	}
	return nil
}

// refusals are how the errors begin of a server that has refused a bundle before it ran, and may do so for one of its calls alone, or
// for no call that is sent alone.
var refusals = []string{"NOPERM", "CROSSSLOT", "Error compiling"}
