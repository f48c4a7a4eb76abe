package transport

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// A bundle sends the last calls of a pipeline as one command with one reply: see bundle.lua.
//
// Only a standalone server gets bundles. In a cluster, two locks may be on two servers. A proxy
// would send the whole bundle to the server of the first lock.
const (
	minBundle = 3   // calls; fewer are cheaper as single commands
	maxBundle = 256 // calls; a full bundle occupies an idle server for about a millisecond

	// bundleTime bounds how long a bundle occupies a slow or busy server. The server answers no
	// other call meanwhile, and this silence must not look like a hang.
	bundleTime = 50 * time.Millisecond
)

// bundles reports whether a connection sends bundles: its server is standalone, and not the last
// that refused one. All servers without a known run ID count as one.
func (n *Node) bundles(k *connection) bool {
	refuser := n.refuser.Load()
	return k.standsAlone && (refuser == nil || *refuser != k.server)
}

// mostInBundle returns the number of calls that a bundle may have; limit is how long the node may
// be silent. The caller holds mu.
func (m *meter) mostInBundle(limit time.Duration) int {
	return int(min(maxBundle, min(bundleTime, limit/8)/max(m.perCall, 1)))
}

// mostFresh returns the number of calls beyond which a pipeline takes no first attempts: a release
// behind it must not wait for long.
func (m *meter) mostFresh() int {
	return int(max(maxBundle/8, min(4*maxBundle, 4*bundleTime/max(m.perCall, 1))))
}

// served records how long a pipeline took the server, beside a round trip.
func (m *meter) served(f *pipeline, trip time.Duration) {
	took := m.heard.Sub(later(f.sent, m.over)) - trip - m.answers
	m.over, m.answers, m.silences = m.heard, 0, 0
	if len(f.calls) >= minBundle {
		m.perCall += (max(took, 0)/time.Duration(len(f.calls)) - m.perCall) / 4
	}
}

// slower records that the server may have been silent because it runs a bundle: the next must be
// shorter. The caller holds mu.
func (l *lane) slower() {
	for _, f := range l.underWay {
		if n := len(f.calls) - f.alone; n > 0 {
			l.meter.perCall = max(l.meter.perCall, f.limit/time.Duration(n))
		}
	}
}

// aloneIn returns the number of calls that are sent as single commands. The others are the bundle,
// of at most so many. It ends the pipeline, so no call of that pipeline overtakes it if it is
// resent.
func aloneIn(calls []*command, most int) int {
	alone := len(calls)
	for alone > 0 && len(calls)-alone < most {
		if c := calls[alone-1]; c.script.Letter == 0 || c.sendsSource {
			break
		}
		alone--
	}
	if len(calls)-alone < minBundle {
		return len(calls)
	}
	return alone
}

// encode makes the bytes of the pipeline.
func (f *pipeline) encode() {
	for _, c := range f.calls[:f.alone] {
		f.out = append(f.out, c.sent...)
	}
	bundle := f.calls[f.alone:]
	if len(bundle) == 0 {
		return
	}
	keys, count := 0, 3
	for _, c := range bundle {
		keys, count = keys+c.keys, count+c.count-2 // the letter instead of the script
	}
	out := appendArray(f.out, count)
	if f.source {
		out = appendBulk(appendBulk(out, "eval"), wire.Bundle.Source)
	} else {
		out = appendBulk(appendBulk(out, "evalsha"), wire.Bundle.SHA())
	}
	at := len(out)
	out = closeBulk(strconv.AppendInt(openBulk(out), int64(keys), 10), at)
	for _, c := range bundle {
		out = append(out, c.sent[c.key:c.arg]...)
	}
	for _, c := range bundle {
		out = append(out, '$', '3', '\r', '\n', c.script.Letter, '0'+byte(c.keys), '0'+byte(c.count-3-c.keys), '\r', '\n')
		out = append(out, c.sent[c.arg:]...)
	}
	f.out = out
}

// receiveBundle reads the reply to a bundle: the replies to its calls, or an error for all.
func (l *lane) receiveBundle(k *connection, f *pipeline) error {
	bundle := f.calls[f.alone:]
	kind, n, line, err := k.replies.open()
	if err != nil {
		return err
	}
	if kind == '*' && n == int64(len(bundle)) {
		for _, c := range bundle {
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
	isUnknown := says(r.Err, "NOSCRIPT") && !f.source
	refused := slices.ContainsFunc(refusals, func(word string) bool { return says(r.Err, word) })
	l.mu.Lock()
	k.source = k.source || isUnknown
	// An ERR may come from a proxy that takes no bundles. The calls may have run, so they fail.
	if refused && !isUnknown || strings.HasPrefix(r.Err.Error(), "ERR ") {
		server := k.server
		l.node.refuser.Store(&server)
	}
	l.mu.Unlock()
	for _, c := range bundle {
		if c.resend = refused; !refused {
			l.took(k, f, c, r)
		}
	}
	f.taken, f.resend = len(f.calls), f.resend || refused
	return nil
}

// refusals are the prefixes of errors that reject a bundle before it runs. Its calls may succeed as
// single commands.
var refusals = []string{"NOSCRIPT", "NOPERM", "CROSSSLOT", "Error compiling"}
