package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// config has the values of the flags.
type config struct {
	plan
	parts       []part
	stores      []store
	least, most int // rounds
	charts      string
	against     string
	check       bool
	quick       bool
	worker      bool
}

func main() {
	cfg, err := parseFlags(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		if cfg.worker {
			err = worker(ctx, os.Stdin, os.Stdout)
		} else {
			err = run(ctx, cfg, os.Stdout, os.Stderr)
		}
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchmarks:", err)
		os.Exit(1)
	}
}

func parseFlags(args []string, stderr io.Writer) (config, error) {
	f := flag.NewFlagSet("benchmarks", flag.ContinueOnError)
	f.SetOutput(stderr)
	cfg := config{plan: plan{leases: 10_000, leaseTime: 3500 * time.Millisecond, patience: 30 * time.Second, stalled: 8000, second: time.Second}}
	parts := f.String("part", partNames(), "what to measure")
	stores := f.String("store", "memory,durable", "where the nodes keep their data: memory, or durable (every write synced), or both")
	callers := f.String("callers", "1,16,256", "how many lock and unlock names of their own")
	contenders := f.String("contenders", "64,256", "how many contend for one lock, each with connections of its own")
	crowds := f.String("crowd", "1000,3000,5000,8000,20000,50000,try,readers,one,clients,steady", "of the part crowd: how many callers come at once, each for a lock of its own; 20000 who try, who read one name, who want one lock, or who come again and again; 2000 clients of one caller each")
	stalls := f.String("stall", "3s,8s,20s", "of the part stall: how long all nodes stand still")
	f.IntVar(&cfg.used, "used", 1_000_000, "of the part idle: how many names are locked and unlocked")
	f.DurationVar(&cfg.idle, "idle", 10*time.Minute, "of the part idle: how long nobody calls then")
	f.DurationVar(&cfg.time, "time", time.Second, "how long one turn of a load is measured; contention takes three times as long")
	f.IntVar(&cfg.least, "rounds", 5, "how many turns each design has; the tables have the medians")
	f.IntVar(&cfg.most, "most", 0, "how many turns if a bound lies within the spread (default: three times -rounds)")
	f.StringVar(&cfg.charts, "charts", "", "the directory to draw the charts to")
	f.StringVar(&cfg.against, "against", "", "another checkout of quorumlock, which is measured in turns with this one")
	f.BoolVar(&cfg.check, "check", false, "end with status 1 if a promise is missed or was not measured")
	f.BoolVar(&cfg.quick, "quick", false, "run everything once and for a moment, to see that it works: judges nothing")
	f.BoolVar(&cfg.worker, "worker", false, "read one job from the standard input and do it: the benchmark runs itself so")
	if err := f.Parse(args); err != nil {
		return cfg, err
	}
	var errs [6]error
	cfg.parts, errs[0] = list("part", *parts, partNamed)
	cfg.stores, errs[1] = list("store", *stores, storeNamed)
	cfg.callers, errs[2] = list("callers", *callers, callersOf)
	cfg.contenders, errs[3] = list("contenders", *contenders, callersOf)
	cfg.crowds, errs[4] = list("crowd", *crowds, crowdNamed)
	cfg.stalls, errs[5] = list("stall", *stalls, stallOf)
	if err := errors.Join(errs[:]...); err != nil {
		return cfg, err
	}
	switch {
	case cfg.time < 10*time.Millisecond || cfg.time > time.Minute:
		return cfg, fmt.Errorf("-time: %v is not from 10ms to 1m", cfg.time)
	case cfg.used < 1 || cfg.used > 100_000_000:
		return cfg, fmt.Errorf("-used: %d is not from 1 to 100000000", cfg.used)
	case cfg.idle < 0 || cfg.idle > 48*time.Hour:
		return cfg, fmt.Errorf("-idle: %v is not from 0 to 48h", cfg.idle)
	case cfg.least < 1:
		return cfg, fmt.Errorf("-rounds: %d: use at least 1", cfg.least)
	case cfg.most != 0 && cfg.most < cfg.least:
		return cfg, fmt.Errorf("-most: %d is less than -rounds", cfg.most)
	case cfg.quick && cfg.check:
		return cfg, errors.New("-check: -quick is too short to judge anything")
	}
	if cfg.most == 0 {
		cfg.most = 3 * cfg.least
	}
	if cfg.quick {
		cfg.beQuick()
	}
	return cfg, nil
}

// beQuick leaves every part, but little of each.
func (c *config) beQuick() {
	c.least, c.most = 1, 1
	for i, one := range c.crowds {
		c.crowds[i].callers = crowdProcesses * max(one.callers/100/crowdProcesses, 1)
	}
	c.plan = plan{callers: []int{1, 16}, contenders: []int{16}, time: 100 * time.Millisecond, leases: 200, leaseTime: 200 * time.Millisecond,
		crowds: c.crowds, patience: 3 * time.Second, stalls: []time.Duration{100 * time.Millisecond}, stalled: 50, second: 50 * time.Millisecond,
		used: 1000, idle: 100 * time.Millisecond}
	c.parts = slices.DeleteFunc(slices.Clone(c.parts), func(p part) bool { return p.name == "tests" })
}

func partNames() string {
	names := make([]string, len(allParts))
	for i, p := range allParts {
		names[i] = p.name
	}
	return strings.Join(names, ",")
}

func partNamed(name string) (part, error) {
	for _, p := range allParts {
		if p.name == name {
			return p, nil
		}
	}
	return part{}, fmt.Errorf("%q is none of %s", name, partNames())
}

func storeNamed(name string) (store, error) {
	switch name {
	case "memory":
		return inMemory, nil
	case "durable":
		return durable, nil
	}
	return "", fmt.Errorf("%q is neither memory nor durable", name)
}

// callersOf reads a number of callers. More than so many would measure the machine's sockets.
func callersOf(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err == nil && (n < 1 || n > 500) {
		err = fmt.Errorf("%d is not from 1 to 500", n)
	}
	return n, err
}

// stallOf reads how long the nodes stand still.
func stallOf(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err == nil && (d <= 0 || d > time.Minute) {
		err = fmt.Errorf("%v is not more than 0 and at most 1m", d)
	}
	return d, err
}

func list[T any](name, s string, parse func(string) (T, error)) ([]T, error) {
	var all []T
	for field := range strings.SplitSeq(s, ",") {
		v, err := parse(strings.TrimSpace(field))
		if err != nil {
			return nil, fmt.Errorf("-%s: %w", name, err)
		}
		all = append(all, v)
	}
	return all, nil
}

// run starts the servers and measures the parts. Tables go to out, progress to log.
func run(ctx context.Context, cfg config, out, log io.Writer) (err error) {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	var other string
	if cfg.against != "" {
		if other, err = buildAgainst(ctx, cfg.against); err != nil {
			return err
		}
		defer os.Remove(other) //nolint:errcheck // a temporary file
	}
	fleets := make(map[store]*fleet)
	var all []*fleet
	for _, s := range cfg.stores {
		f, err := newFleet(ctx, s)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.close()) }()
		fleets[s], all = f, append(all, f)
	}
	synced, err := syncTime(all[0].dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "All servers and clients on one machine, over loopback: %s\n", describe(ctx, all[0]))
	fmt.Fprintf(out, "To write and sync 4 KB takes %.2f ms here (median). Medians of %d rounds or more, each of %v.\n", millis(synced), cfg.least, cfg.time)

	r := report{out: out, judged: !cfg.quick, counts: make(map[verdict]int)}
	ref := referee{least: cfg.least, most: cfg.most,
		progress: func(format string, args ...any) {
			fmt.Fprintf(log, "%s  "+format+"\n", append([]any{time.Now().Format(time.TimeOnly)}, args...)...)
		},
		clear: func(ctx context.Context, c *contest) error {
			redis := fleets[c.store].redis
			if err := redis.settle(ctx); err != nil {
				return err
			}
			return redis.clear(ctx)
		},
		work: func(ctx context.Context, p string, j job) (answer, error) {
			if p == "" {
				p = program
			}
			return work(ctx, p, j)
		}}
	for _, p := range cfg.parts {
		began := listen(all)
		var contests []*contest
		for _, f := range all {
			some, err := p.contests(ctx, cfg.plan, f)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			for _, c := range some {
				c.part, c.store = p.name, f.store
				if other != "" {
					c.addAgainst(other)
				}
				if err := ref.run(ctx, c); err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}
			}
			contests = append(contests, some...)
		}
		r.part(p, contests)
		fmt.Fprintf(out, "\nOther programs used %.0f %% of the processors meanwhile.\n", 100*began.others())
		if cfg.charts != "" {
			subtitle := fmt.Sprintf("medians; servers and clients on one machine: %d CPUs, %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
			if err := drawCharts(cfg.charts, subtitle, p, contests); err != nil {
				return err
			}
		}
	}
	if cfg.quick {
		return nil
	}
	err = r.sum()
	if !cfg.check {
		return nil
	}
	return err
}
