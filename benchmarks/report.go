package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"
)

// report measures the parts of a run and prints them.
type report struct {
	srv     *servers
	cfg     config
	machine string
	out     io.Writer
	log     io.Writer
	missed  int // promises that were not kept
}

func (r *report) progress(format string, args ...any) {
	fmt.Fprintf(r.log, "%s  "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
}

func (r *report) keep(kept bool) string {
	if !kept {
		r.missed++
	}
	return verdict(kept)
}

// single measures what one caller sees.
func (r *report) single(ctx context.Context) error {
	t := table{title: "One caller, five nodes", head: []string{"what", "measured", "against", "ratio", "promised", ""}}
	for _, measure := range []func(context.Context, *table) error{r.duel, r.slowNode, r.handoff, r.serverTime, r.goroutines} {
		if err := measure(ctx, &t); err != nil {
			return err
		}
	}
	t.print(r.out)
	return nil
}

// Turns of the measurements of a single caller.
const (
	duelTurns    = 4000
	slowBlocks   = 8
	slowBlock    = 250
	pacedBlock   = 50
	handoffTurns = 200
	warmUpTurns  = 50
)

func (r *report) duel(ctx context.Context, t *table) error {
	r.progress("one caller against a plain client")
	d, err := newDuel(r.srv, openQuorumlock, openPlain)
	if err != nil {
		return err
	}
	for i := range warmUpTurns + duelTurns {
		if i == warmUpTurns {
			d.reset()
		}
		if err := d.turn(ctx); err != nil {
			return errors.Join(err, d.close())
		}
	}
	ratio := over(d.ones.quantile(0.5), d.others.quantile(0.5))
	t.add("lock+unlock p50", ms(d.ones.quantile(0.5)), "two EVALSHA rounds, plain client: "+ms(d.others.quantile(0.5)),
		fmt.Sprintf("%.2f", ratio), "at most 1", r.keep(ratio <= 1))
	t.add("lock+unlock p99", ms(d.ones.quantile(0.99)), "the same: "+ms(d.others.quantile(0.99)),
		fmt.Sprintf("%.2f", over(d.ones.quantile(0.99), d.others.quantile(0.99))), "", "")
	return d.close()
}

func over(a, b time.Duration) float64 { return float64(a) / float64(max(b, 1)) }

func (r *report) slowNode(ctx context.Context, t *table) error {
	for _, kind := range []struct {
		name  string
		pace  time.Duration
		block int
	}{{"back to back", 0, slowBlock}, {"one every 20 ms", 20 * time.Millisecond, pacedBlock}} {
		r.progress("one node 100 ms away, %s", kind.name)
		s, err := newSlowNode(r.srv, 100*time.Millisecond, kind.pace)
		if err != nil {
			return err
		}
		for i := range slowBlocks + 1 {
			if err := s.block(ctx, kind.block); err != nil {
				return errors.Join(err, s.close())
			}
			if i == 0 {
				s.reset()
			}
		}
		slow, healthy := s.slowSample.quantile(0.99), s.healthySample.quantile(0.99)
		t.add("p99, one node 100 ms away, "+kind.name, ms(slow), "all healthy: "+ms(healthy),
			fmt.Sprintf("%.2f", over(slow, healthy)), "at most 2", r.keep(over(slow, healthy) <= 2))
		if err := s.close(); err != nil {
			return err
		}
	}
	return nil
}

func (r *report) handoff(ctx context.Context, t *table) error {
	r.progress("the handoff")
	h, err := newHandoff(r.srv, contentionVariants()[0])
	if err != nil {
		return err
	}
	for i := range warmUpTurns + handoffTurns {
		if i == warmUpTurns {
			h.reset()
		}
		if err := h.turn(ctx); err != nil {
			return errors.Join(err, h.close())
		}
	}
	delay, one, all := h.delays.quantile(0.5), h.one.quantile(0.5), h.all.quantile(0.5)
	t.add("from Unlock to the next Lock, p50", ms(delay), "a raw EVALSHA: "+ms(one),
		fmt.Sprintf("%.2f", over(delay, one)), "at most 3", r.keep(over(delay, one) <= 3))
	t.add("the same", ms(delay), "a raw EVALSHA at all five nodes: "+ms(all),
		fmt.Sprintf("%.2f", over(delay, all)), "", "")
	return h.close()
}

func (r *report) serverTime(ctx context.Context, t *table) error {
	r.progress("the servers' time")
	s, err := measureServerTime(ctx, r.srv)
	if err != nil {
		return err
	}
	row := func(name string, ours, lineless float64, promised, verdict string) {
		t.add(name, fmt.Sprintf("%.2f µs", ours), fmt.Sprintf("without a line: %.2f µs", lineless), fmt.Sprintf("%+.2f µs", ours-lineless), promised, verdict)
	}
	row("server's time, acquire", s.acquire, s.linelessAcquire, "at most +1 µs", r.keep(s.acquire-s.linelessAcquire <= 1))
	row("server's time, release", s.release, s.linelessRelease, "", "")
	return nil
}

func (r *report) goroutines(ctx context.Context, t *table) error {
	const leases = 10_000
	r.progress("%d leases", leases)
	g, err := measureGoroutines(ctx, r.srv, leases)
	if err != nil {
		return err
	}
	t.add("goroutines holding 10,000 leases, p50", strconv.Itoa(g.median), fmt.Sprintf("with no client: %d; during a tick: %d", g.before, g.most),
		"", "below 50", r.keep(g.median < 50))
	t.add("of the leases, lost", strconv.Itoa(g.lost), "", "", "0", r.keep(g.lost == 0))
	return nil
}

// uncontended measures callers who want nothing of each other.
func (r *report) uncontended(ctx context.Context) error {
	t := table{title: "Lock and unlock, nobody waits: one client, each caller a name of its own",
		head: []string{"callers", "design", "pairs/s", "p50", "p99", "failed"}}
	for _, callers := range r.cfg.callers {
		for _, v := range uncontendedVariants() {
			r.progress("%d callers, %s", callers, v.name)
			got, err := load{callers, r.cfg.duration}.run(ctx, r.srv, v)
			if err != nil {
				return err
			}
			t.add(strconv.Itoa(callers), v.name, count(got.perSecond), ms(got.p50), ms(got.p99), strconv.Itoa(got.failed))
			if got.failure != nil {
				r.progress("%d of them failed, the first with: %v", got.failed, got.failure)
			}
		}
	}
	t.print(r.out)
	fmt.Fprintf(r.out, "\n%s\n", rueidislockNote)
	return nil
}

// contention measures callers who all want one lock.
func (r *report) contention(ctx context.Context) error {
	variants := contentionVariants()
	t := table{title: "Contention: all want one lock, each with a client of its own",
		head: []string{"hold", "contenders", "design", "grants/s", "handoffs/s", "scripts per grant", "per handoff", "wait p50", "p99", "max", "Jain index"}}
	promises := table{title: "What the line promises", head: []string{"what", "hold", "contenders", "measured", "promised", ""}}
	for _, hold := range r.cfg.holds {
		picture := newContentionChart(hold, r.machine, variants)
		for _, n := range r.cfg.contenders {
			outs, err := r.scene(ctx, variants, scene{n, hold, r.cfg.duration})
			if err != nil {
				return err
			}
			for i, o := range outs {
				t.add(hold.String(), strconv.Itoa(n), variants[i].name, count(o.grants), count(o.handoffs), count(o.perGrant), count(o.perHandoff),
					ms(o.p50), ms(o.p99), ms(o.most), fmt.Sprintf("%.3f", o.jain))
			}
			r.promises(&promises, n, hold, outs)
			picture.add(n, outs)
		}
		if hold == r.cfg.holds[len(r.cfg.holds)-1] && r.cfg.svg != "" {
			if err := os.WriteFile(r.cfg.svg, []byte(picture.svg()), 0o644); err != nil {
				return err
			}
		}
	}
	t.print(r.out)
	fmt.Fprintln(r.out, "\nA handoff is a grant to another contender than had the lock before; who releases and takes it again himself hands nothing over.")
	promises.print(r.out)
	return nil
}

// scene plays a scene with every variant, once for every seed, and returns the medians.
func (r *report) scene(ctx context.Context, variants []variant, s scene) ([]outcome, error) {
	rounds := make([][]outcome, len(variants))
	for _, seed := range r.cfg.seeds {
		for _, i := range rand.New(rand.NewPCG(seed, uint64(s.contenders))).Perm(len(variants)) {
			r.progress("%d contenders, hold %v, %s, seed %d", s.contenders, s.hold, variants[i].name, seed)
			o, err := contend(ctx, r.srv, variants[i], s, seed)
			if err != nil {
				return nil, err
			}
			rounds[i] = append(rounds[i], o)
		}
	}
	outs := make([]outcome, len(variants))
	for i := range rounds {
		outs[i] = medianOutcome(rounds[i])
	}
	return outs, nil
}

// medianOutcome takes the median of each figure by itself.
func medianOutcome(rounds []outcome) outcome {
	of := func(f func(outcome) float64) float64 {
		xs := make([]float64, len(rounds))
		for i, o := range rounds {
			xs[i] = f(o)
		}
		return median(xs)
	}
	return outcome{
		grants:     of(func(o outcome) float64 { return o.grants }),
		handoffs:   of(func(o outcome) float64 { return o.handoffs }),
		perGrant:   of(func(o outcome) float64 { return o.perGrant }),
		perHandoff: of(func(o outcome) float64 { return o.perHandoff }),
		p50:        time.Duration(of(func(o outcome) float64 { return float64(o.p50) })),
		p99:        time.Duration(of(func(o outcome) float64 { return float64(o.p99) })),
		most:       time.Duration(of(func(o outcome) float64 { return float64(o.most) })),
		jain:       of(func(o outcome) float64 { return o.jain }),
	}
}

// promises compares the first variant with what it must reach, and with redsync where that is asked.
func (r *report) promises(t *table, contenders int, hold time.Duration, outs []outcome) {
	ours, redsync := outs[0], outs[slices.IndexFunc(contentionVariants(), func(v variant) bool { return v.name == "redsync" })]
	add := func(what, measured, promised string, kept bool) {
		t.add(what, hold.String(), strconv.Itoa(contenders), measured, promised, r.keep(kept))
	}
	add("scripts per handoff", count(ours.perHandoff), fmt.Sprintf("at most %d", 3*nodes+1), ours.perHandoff <= 3*nodes+1)
	add("Jain index", fmt.Sprintf("%.3f", ours.jain), "at least 0.99", ours.jain >= 0.99)
	if contenders == 64 && hold == time.Millisecond {
		add("wait p99 / redsync's", fmt.Sprintf("%.3f", over(ours.p99, redsync.p99)), "at most 0.1", over(ours.p99, redsync.p99) <= 0.1)
		ratio := ours.handoffs / max(redsync.handoffs, 1)
		add("handoffs/s / redsync's", fmt.Sprintf("%.2f", ratio), "at least 2", ratio >= 2)
		t.add("grants/s / redsync's", hold.String(), strconv.Itoa(contenders), fmt.Sprintf("%.2f", ours.grants/max(redsync.grants, 1)), "", "")
	}
}

// contentionChart gathers the chart's lines while the scenes are played.
type contentionChart struct{ chart }

func newContentionChart(hold time.Duration, machine string, variants []variant) *contentionChart {
	c := &contentionChart{chart{
		title:    "One lock, many contenders",
		subtitle: fmt.Sprintf("five nodes, each contender holds the lock for %v; all on one machine: %s", hold, machine),
		panels: []panel{
			{title: "wait p99, ms (less is better)", xName: "contenders"},
			{title: "handoffs per second (more is better)", xName: "contenders"},
		},
	}}
	for i := range c.panels {
		for _, v := range variants {
			c.panels[i].lines = append(c.panels[i].lines, line{name: v.name})
		}
	}
	return c
}

func (c *contentionChart) add(contenders int, outs []outcome) {
	for i := range c.panels {
		c.panels[i].xs = append(c.panels[i].xs, strconv.Itoa(contenders))
	}
	for i, o := range outs {
		wait, handoffs := &c.panels[0].lines[i], &c.panels[1].lines[i]
		wait.ys = append(wait.ys, float64(o.p99)/float64(time.Millisecond))
		handoffs.ys = append(handoffs.ys, o.handoffs)
	}
}
