package demo

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// embeddedDemo returns a demo on embedded nodes, with its output, closed at the end of the test. It
// is for synctest bubbles, where timers are never late.
func embeddedDemo(t *testing.T) (*demo, *strings.Builder) {
	t.Helper()
	s, err := Embedded()
	testkit.Must(t, err, "a stage of embedded nodes")
	t.Cleanup(func() {
		testkit.OK(t, s.Close(), "Close")
		// go-redis looks once a second whether to stop redialling a dead node.
		time.Sleep(2 * time.Second)
	})
	var out strings.Builder
	d := newDemo(s, &out, false)
	d.late = 0
	return d, &out
}

func TestEveryPromiseIsKeptOnEmbeddedNodes(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d, out := embeddedDemo(t)
		testkit.OK(t, d.play(t.Context()), "the demo, after\n%s", out)
		if d.acts != 7 || d.kept < 20 {
			t.Errorf("%d acts with %d promises:\n%s", d.acts, d.kept, out)
		}
		if took := time.Since(d.start); took > 10*time.Second {
			t.Errorf("it waits for %v in all", took)
		}
	})
}

func TestBrokenPromiseIsFound(t *testing.T) {
	type plant = func(t *testing.T, d *demo)
	unfenced := func(_ *testing.T, d *demo) { d.resource.stale = func(_, _ uint64) bool { return false } }
	forget := func(when string) plant { return func(_ *testing.T, d *demo) { d.forgetWhen(when) } }
	for _, test := range []struct {
		name  string
		plant plant
		act   func(*demo, context.Context) error
		want  string // in the broken promise
	}{
		{"resource without fencing", unfenced, (*demo).pausedHolder, "late write"},
		{"resource that refuses the holder", func(_ *testing.T, d *demo) { d.resource.highest = math.MaxUint64 }, (*demo).contention, "0 of 15 jobs"},
		{"tokens that fall", func(_ *testing.T, d *demo) { d.resource.last = math.MaxUint64 }, (*demo).contention, "higher token"},
		{"workers that lock at other nodes", func(t *testing.T, d *demo) {
			other, _ := embeddedDemo(t)
			d.workers[0], other.workers[0] = other.workers[0], d.workers[0]
			unfenced(t, d)
		}, (*demo).contention, "mutual exclusion"},
		{"nodes that forget the holder", forget("is paused"), (*demo).pausedHolder, "before the lease on it is over"},
		{"nodes that forget the next holder", forget("refuses the late write"), (*demo).pausedHolder, "works on"},
		// Four nodes are left, so the lease is not lost.
		{"holder who is not told of a loss", func(*testing.T, *demo) {}, (*demo).quorumLost, "told of its loss"},
		{"holder who is told too late", func(_ *testing.T, d *demo) {
			d.servers[2].Stall()
			d.servers[4].Kill()
			d.late = -time.Millisecond
		}, (*demo).quorumLost, "told of its loss"},
		{"lock that is left", func(t *testing.T, d *demo) { testkit.Lock(t, d.lock(0)) }, (*demo).nothingLeft, "no node has the lock"},
	} {
		testkit.Run(t, test.name, func(t *testing.T) {
			d, out := embeddedDemo(t)
			test.plant(t, d)
			testkit.Must(t, test.act(d, t.Context()), "the act")
			testkit.Is(t, d.summary(), ErrBroken, "after\n%s", out)
			if len(d.broken) > 2 || !strings.Contains(strings.Join(d.broken, "\n"), test.want) {
				t.Errorf("broken: %q, want %q, and at most one more", d.broken, test.want)
			}
		})
	}
}

// forgetWhen makes the nodes lose their data when a line with that text is printed.
func (d *demo) forgetWhen(text string) {
	d.out = &testkit.Cue{Writer: d.out, Text: text, Do: func() {
		time.Sleep(jobTakes) // the clock is where tokens begin when the counters are lost
		testkit.Each(d.servers, func(s *embedded.Server) { s.Redis.FlushAll() })
	}}
}

func TestInterruptedDemoLeavesNoLock(t *testing.T) {
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
		testkit.Run(t, test.name, func(t *testing.T) {
			d, out := embeddedDemo(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			d.out = &testkit.Cue{Writer: d.out, Text: test.cue, Do: func() { time.AfterFunc(test.after, cancel) }}
			testkit.Is(t, test.act(d, ctx), context.Canceled, "after\n%s", out)
			for _, c := range d.workers { // returns when all that was under way is done
				testkit.OK(t, c.Close(), "Close")
			}
			for _, s := range d.servers[:test.reachable] {
				if left := testkit.Keys(s); len(left) > 0 {
					t.Errorf("%s still has %q", s.Name, left)
				}
			}
		})
	}
}

func TestColorIsOnlyForTerminals(t *testing.T) {
	for color, want := range map[bool]string{false: " kept ", true: " \x1b[32mkept\x1b[0m "} {
		var out strings.Builder
		r := report{out: &out, color: color}
		r.act("an act")
		r.promise(true, "kept")
		r.promise(false, "broken")
		testkit.Is(t, r.summary(), ErrBroken, "summary")
		if got := out.String(); !strings.Contains(got, want) || strings.Contains(got, "\x1b") != color {
			t.Errorf("with colours: %v, it prints %q", color, got)
		}
	}
}
