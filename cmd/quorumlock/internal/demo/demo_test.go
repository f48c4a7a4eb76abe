package demo

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/internal/locktest"
)

func TestMain(m *testing.M) { locktest.Main(m) }

// embeddedDemo returns a demo on embedded nodes, with its output, closed at the end of the test. It
// is for synctest bubbles, where timers are never late.
func embeddedDemo(t *testing.T) (*demo, *strings.Builder) {
	t.Helper()
	s, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		// go-redis looks once a second whether to stop redialling a dead node.
		time.Sleep(2 * time.Second)
	})
	var out strings.Builder
	d := newDemo(s, &out, false)
	d.late = 0
	return d, &out
}

func TestEveryPromiseIsKeptOnEmbeddedNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, out := embeddedDemo(t)
		if err := d.play(t.Context()); err != nil {
			t.Errorf("%v, after\n%s", err, out)
		}
		if d.acts != 7 || d.kept < 20 {
			t.Errorf("%d acts with %d promises:\n%s", d.acts, d.kept, out)
		}
		if took := time.Since(d.start); took > 10*time.Second {
			t.Errorf("it waits for %v in all", took)
		}
	})
}

func TestBrokenPromiseIsFound(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		plant func(t *testing.T, d *demo)
		act   func(*demo, context.Context) error
		want  string // in the broken promise
	}{
		{
			name:  "resource without fencing",
			plant: func(_ *testing.T, d *demo) { d.resource.stale = func(_, _ uint64) bool { return false } },
			act:   (*demo).pausedHolder,
			want:  "late write",
		},
		{
			name:  "resource that refuses the holder",
			plant: func(_ *testing.T, d *demo) { d.resource.highest = math.MaxUint64 },
			act:   (*demo).contention,
			want:  "0 of 15 jobs",
		},
		{
			name:  "tokens that fall",
			plant: func(_ *testing.T, d *demo) { d.resource.last = math.MaxUint64 },
			act:   (*demo).contention,
			want:  "higher token",
		},
		{
			name: "workers that lock at other nodes",
			plant: func(t *testing.T, d *demo) {
				other, _ := embeddedDemo(t)
				d.workers[0], other.workers[0] = other.workers[0], d.workers[0]
				d.resource.stale = func(_, _ uint64) bool { return false }
			},
			act:  (*demo).contention,
			want: "mutual exclusion",
		},
		{
			name:  "nodes that forget the holder",
			plant: func(_ *testing.T, d *demo) { d.forgetWhen("is paused") },
			act:   (*demo).pausedHolder,
			want:  "before the lease on it is over",
		},
		{
			name:  "nodes that forget the next holder",
			plant: func(_ *testing.T, d *demo) { d.forgetWhen("refuses the late write") },
			act:   (*demo).pausedHolder,
			want:  "works on",
		},
		{
			name:  "holder who is not told of a loss",
			plant: func(_ *testing.T, _ *demo) {}, // four nodes are left, so the lease is not lost
			act:   (*demo).quorumLost,
			want:  "told of its loss",
		},
		{
			name: "holder who is told too late",
			plant: func(_ *testing.T, d *demo) {
				d.servers[2].Stall()
				d.servers[4].Kill()
				d.late = -time.Millisecond
			},
			act:  (*demo).quorumLost,
			want: "told of its loss",
		},
		{
			name: "lock that is left",
			plant: func(t *testing.T, d *demo) {
				if _, err := d.lock(0).Lock(t.Context()); err != nil {
					t.Fatal(err)
				}
			},
			act:  (*demo).nothingLeft,
			want: "no node has the lock",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, out := embeddedDemo(t)
				test.plant(t, d)
				if err := test.act(d, t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := d.summary(); !errors.Is(err, ErrBroken) {
					t.Errorf("%v, want ErrBroken, after\n%s", err, out)
				}
				if len(d.broken) > 2 {
					t.Errorf("more than was planted is broken: %q", d.broken)
				}
				if !strings.Contains(strings.Join(d.broken, "\n"), test.want) {
					t.Errorf("broken: %q, want %q", d.broken, test.want)
				}
			})
		})
	}
}

// forgetWhen makes the nodes lose their data when a line with that text is printed.
func (d *demo) forgetWhen(text string) {
	d.out = &cue{d.out, text, func() {
		time.Sleep(jobTakes) // the clock is where tokens begin when the counters are lost
		for _, s := range d.servers {
			s.Redis.FlushAll()
		}
	}}
}

// cue is an output that does something when a line with some text is printed.
type cue struct {
	io.Writer
	text string
	do   func()
}

func (c *cue) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(c.text)) {
		c.do()
	}
	return c.Writer.Write(line)
}

func TestInterruptedDemoLeavesNoLock(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name      string
		act       func(*demo, context.Context) error
		cue       string
		after     time.Duration
		reachable int // nodes that are, when it is interrupted
	}{
		{"while workers contend", (*demo).contention, "one holder at a time", 12 * time.Millisecond, 5},
		{"after nodes were killed", (*demo).twoNodesKilled, "die while", 50 * time.Millisecond, 3},
		{"while a lease is renewed", (*demo).quorumLost, "A third", 500 * time.Millisecond, 5},
		{"while rivals wait in vain", (*demo).quorumLost, "dies again", 100 * time.Millisecond, 3},
		{"while a holder is paused", (*demo).pausedHolder, "is paused", 12 * time.Millisecond, 5},
		{"while the next one holds", (*demo).pausedHolder, "and writes", 12 * time.Millisecond, 5},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, out := embeddedDemo(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				d.out = &cue{d.out, test.cue, func() { time.AfterFunc(test.after, cancel) }}
				if err := test.act(d, ctx); !errors.Is(err, context.Canceled) {
					t.Fatalf("%v, want context.Canceled, after\n%s", err, out)
				}
				for _, c := range d.workers { // returns when all that was under way is done
					if err := c.Close(); err != nil {
						t.Error(err)
					}
				}
				for _, s := range d.servers[:test.reachable] {
					if left := locktest.Keys(s); len(left) > 0 {
						t.Errorf("%s still has %q", s.Name, left)
					}
				}
			})
		})
	}
}

func TestColorIsOnlyForTerminals(t *testing.T) {
	var plain, colored strings.Builder
	for out, color := range map[*strings.Builder]bool{&plain: false, &colored: true} {
		r := report{out: out, color: color}
		r.act("an act")
		r.promise(true, "kept")
		r.promise(false, "broken")
		if err := r.summary(); err != ErrBroken {
			t.Errorf("summary: %v, want ErrBroken", err)
		}
	}
	if strings.Contains(plain.String(), "\x1b") {
		t.Errorf("plain output has colours: %q", plain.String())
	}
	if !strings.Contains(colored.String(), "\x1b[32mkept\x1b[0m") {
		t.Errorf("coloured output has none: %q", colored.String())
	}
}
