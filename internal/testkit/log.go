package testkit

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"

	"github.com/quorumlock/quorumlock"
)

// Log records the output of a logger. It is safe for concurrent use.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Logger returns a log and the option that makes a client write to it.
func Logger() (*Log, quorumlock.Option) {
	l := &Log{}
	return l, quorumlock.WithLogger(slog.New(slog.NewTextHandler(l, nil)))
}

// Write implements io.Writer, for the logger.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// Lines returns the lines that contain all of the parts.
func (l *Log) Lines(parts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		all := true
		for _, p := range parts {
			all = all && strings.Contains(line, p)
		}
		if all {
			found = append(found, line)
		}
	}
	return found
}

// Observer is a [quorumlock.Observer] of events only: it adds no context.
type Observer func(e quorumlock.Event)

// Begin implements [quorumlock.Observer].
func (Observer) Begin(context.Context, string) context.Context { return nil }

// Observe implements [quorumlock.Observer].
func (o Observer) Observe(_ context.Context, e quorumlock.Event) { o(e) }

// Events is a [quorumlock.Observer] that counts events. Its zero value is ready for concurrent use.
type Events struct {
	mu    sync.Mutex
	kinds map[quorumlock.EventKind]int
}

// Begin implements [quorumlock.Observer].
func (*Events) Begin(ctx context.Context, _ string) context.Context { return ctx }

// Observe implements [quorumlock.Observer].
func (o *Events) Observe(_ context.Context, e quorumlock.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.kinds == nil {
		o.kinds = make(map[quorumlock.EventKind]int)
	}
	o.kinds[e.Kind]++
}

// Of returns the number of events of a kind.
func (o *Events) Of(kind quorumlock.EventKind) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.kinds[kind]
}

// OfLocks returns the number of events of locks, without those of nodes.
func (o *Events) OfLocks() (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for kind, k := range o.kinds {
		if kind < quorumlock.EventNodeAsked {
			n += k
		}
	}
	return n
}
