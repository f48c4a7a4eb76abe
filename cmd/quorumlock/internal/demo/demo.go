// Package demo shows the lock at work, act by act, and checks every promise that it shows. The acts
// in acts.go are meant to be read as examples of how to use the library.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quorumlock/quorumlock"
)

// ErrBroken means that the lock did not keep a promise.
var ErrBroken = errors.New("a promise was broken")

// demo is one run.
type demo struct {
	*Stage
	report
	resource *resource
	late     time.Duration // how late a timer may fire on a busy machine
}

// Run plays the demo on s and prints it to out. It returns ErrBroken if the lock did not keep a
// promise, and another error if the demo could not be played to its end: ctx's if ctx was done. In
// all cases no lock is left. It does not close s.
func Run(ctx context.Context, s *Stage, out io.Writer, color bool) error {
	return newDemo(s, out, color).play(ctx)
}

func newDemo(s *Stage, out io.Writer, color bool) *demo {
	return &demo{
		Stage:    s,
		report:   report{out: out, color: color, start: time.Now()},
		resource: newResource(),
		late:     100 * time.Millisecond,
	}
}

func (d *demo) play(ctx context.Context) error {
	if err := d.reachable(ctx); err != nil {
		return err
	}
	d.line(fmt.Sprintf("%s on %s, of which %d make a quorum", d.paint(bold, "quorumlock demo"), d.about, len(d.nodes)/2+1))

	acts := []func(context.Context) error{d.contention, d.pausedHolder, d.nothingLeft}
	if len(d.servers) > 0 {
		acts = []func(context.Context) error{
			d.contention, d.twoNodesKilled, d.oneNodeStalled, d.quorumLost, d.nodesBack, d.pausedHolder, d.nothingLeft,
		}
	}
	for _, act := range acts {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return d.summary()
}

// lock returns the lock that everything is about, as worker w takes it.
func (d *demo) lock(w int, opts ...quorumlock.Option) quorumlock.Locker {
	return d.workers[w].Mutex(d.name, opts...)
}

// sleep waits for so long, or returns ctx's error.
func sleep(ctx context.Context, howLong time.Duration) error {
	t := time.NewTimer(howLong)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
