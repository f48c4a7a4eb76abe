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

// nodes is how many servers a lock has in all measurements.
const nodes = 5

// config is what the flags say.
type config struct {
	parts      []string
	contenders []int
	holds      []time.Duration
	duration   time.Duration
	seeds      []uint64
	callers    []int
	svg        string
	check      bool
}

var allParts = []string{"single", "uncontended", "contention"}

func main() {
	cfg, err := parseFlags(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		err = run(ctx, cfg, os.Stdout, os.Stderr)
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
	parts := f.String("part", strings.Join(allParts, ","), "what to measure")
	contenders := f.String("contenders", "4,16,64,256", "how many contend for one lock, each with connections of its own")
	holds := f.String("hold", "0s,1ms", "for how long a contender holds the lock")
	duration := f.Duration("duration", 5*time.Second, "for how long each contention and each load is measured")
	seeds := f.String("seeds", "1", "one round for each, in which its variants take their turns in another order; the table has the medians")
	callers := f.String("callers", "1,16,256", "how many lock and unlock names of their own")
	svg := f.String("svg", "", "the file to draw the contention's chart to")
	check := f.Bool("check", false, "end with an error if a promise is missed")
	if err := f.Parse(args); err != nil {
		return config{}, err
	}
	cfg := config{duration: *duration, svg: *svg, check: *check, parts: strings.Split(*parts, ",")}
	for _, p := range cfg.parts {
		if !slices.Contains(allParts, p) {
			return cfg, fmt.Errorf("-part: %q is none of %s", p, strings.Join(allParts, ", "))
		}
	}
	if cfg.duration < 100*time.Millisecond || cfg.duration > time.Minute {
		return cfg, fmt.Errorf("-duration: %v: use 100ms to 1m", cfg.duration)
	}
	// More than that would measure the machine's sockets.
	number := func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err == nil && (n < 1 || n > 1000) {
			err = fmt.Errorf("%d is not from 1 to 1000", n)
		}
		return n, err
	}
	hold := func(s string) (time.Duration, error) {
		d, err := time.ParseDuration(s)
		if err == nil && (d < 0 || d > time.Second) {
			err = fmt.Errorf("%v is not from 0s to 1s", d)
		}
		return d, err
	}
	var errs [4]error
	cfg.contenders, errs[0] = list("contenders", *contenders, number)
	cfg.callers, errs[1] = list("callers", *callers, number)
	cfg.holds, errs[2] = list("hold", *holds, hold)
	cfg.seeds, errs[3] = list("seeds", *seeds, func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) })
	return cfg, errors.Join(errs[:]...)
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
	srv, err := startServers(ctx, nodes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.close()) }()
	version, err := srv.version(ctx)
	if err != nil {
		return err
	}
	machine := fmt.Sprintf("%d CPUs, Redis %s, %s, %s/%s", runtime.NumCPU(), version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	fmt.Fprintf(out, "%d redis-server processes and all clients on one machine: %s\n", nodes, machine)

	r := report{srv: srv, cfg: cfg, machine: machine, out: out, log: log}
	parts := map[string]func(context.Context) error{"single": r.single, "uncontended": r.uncontended, "contention": r.contention}
	for _, p := range cfg.parts {
		if err := parts[p](ctx); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	if cfg.check && r.missed > 0 {
		return fmt.Errorf("%d promises were missed: see MISSED above", r.missed)
	}
	return nil
}
