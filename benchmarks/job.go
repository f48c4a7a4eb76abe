package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// job is one measurement of one design. It runs in a process of its own, so that the garbage and
// goroutines of one design do not slow another.
type job struct {
	Kind    jobKind
	Design  string
	Addrs   []string // the servers as the design reaches them
	Servers []int    // processes to measure the time of
	Redis   []string // servers to count the scripts of
	Callers int      // callers or contenders
	// Pairs that begin in a second, at random times; Callers is then the expected number at once.
	// 0: each caller begins its next pair at once.
	Rate float64
	// 0: each caller has a name of its own; else each takes one of so many at random.
	Names   int
	Fresh   bool          // each caller takes a name that was never used before, each time
	Clients int           // clients that the callers share; 0: one
	Hold    time.Duration // of a contender; of stall: how long the nodes stand still; of idle: how long nobody calls
	// Of crowd: the processes that share the callers, each of which then has a client of its own;
	// 0: this one. Start is the address at which such a process waits for the start of all.
	Processes int
	Start     string
	Try       bool // of crowd: with TryLock
	// Of mixed: the number of contenders with Redisson's clients; Callers are the others.
	Java int
	// Of mixed: how the Java contenders lock; of a mix: how all do; of scale: the growing thing.
	By string
	// Held and renewed by the same client; of scale: the growing things in each of Callers rounds.
	Leases int
	Freeze []int // processes to freeze after the warm-up, and to thaw at the end
	// Before, and while, it is measured. Of crowd, Time is the longest wait of a caller; of stall,
	// the time of one rate.
	Warm, Time time.Duration
}

type jobKind string

const (
	loadJob       jobKind = "load"
	contentionJob jobKind = "contention"
	distanceJob   jobKind = "distance"
	mixJob        jobKind = "mix"
	mixedJob      jobKind = "mixed"
	scaleJob      jobKind = "scale"
	crowdJob      jobKind = "crowd"
	stallJob      jobKind = "stall"
	idleJob       jobKind = "idle"
	testsJob      jobKind = "tests"
)

// metric names a figure; its unit is part of the name.
type metric string

const (
	pairs      metric = "pairs/s" // a pair is a lock and its unlock
	p50        metric = "p50 ms"
	p99        metric = "p99 ms"
	allocs     metric = "allocs"
	kilobytes  metric = "KB"
	clientCPU  metric = "client µs"
	serverCPU  metric = "server µs"
	reads      metric = "reads"
	writes     metric = "writes"
	goroutines metric = "goroutines" // while nothing is asked of the leases
	lost       metric = "lost leases"
	failed     metric = "failed pairs"

	held            metric = "held %" // share of the time in which the lock is held
	grants          metric = "grants/s"
	handoffs        metric = "handoffs/s" // a grant to another contender than the last one
	scriptsAHandoff metric = "scripts/handoff"
	fairness        metric = "Jain"
	roundTrip       metric = "round trip ms" // to the quorum-th nearest node
	roundTripsALock metric = "ratio"         // lock and unlock to two round trips
	seconds         metric = "seconds"
	readWait        metric = "reader p99 ms"
	writeWait       metric = "writer p99 ms"
	scriptsAGrant   metric = "scripts/grant"
	goShare         metric = "Go %"          // of the grants
	javaWorst       metric = "Java worst ms" // the longest wait
	goWorst         metric = "Go worst ms"

	granted       metric = "granted"
	everyone      metric = "seconds for all" // like seconds, but only if no pair failed
	before        metric = "pairs/s before"
	back          metric = "back to %" // the median rate from the 3rd second on, of the rate before
	heapBefore    metric = "MB before"
	heapMeanwhile metric = "MB in the stall"
	heapAfter     metric = "MB after"
	heapKept      metric = "MB after, % of before"

	// Of the node with the most, beyond what it had before.
	dataInUse metric = "MB more at the last pair"
	dataIdle  metric = "MB more, idle"
	fileIdle  metric = "MB more in the rewritten file, idle"
)

// figures are the results of one job.
type figures map[metric]float64

// answer is the output of a worker process.
type answer struct {
	Figures figures
	Failure string // the first pair that failed, if any did
	Err     string
	Crowded *crowded `json:",omitempty"` // of crowd, for the process that sums up
}

// longest is the time after which a job has failed: a lock that hangs does not hang the run. Most
// jobs have a shorter bound of their own.
func (j job) longest() time.Duration {
	return 10*time.Minute + j.Hold + time.Duration(j.Names)*slowPair
}

// work does a job in a process of its own, of the given program.
func work(ctx context.Context, program string, j job) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, j.longest())
	defer cancel()
	asked, err := json.Marshal(j)
	if err != nil {
		return answer{}, err
	}
	cmd := exec.CommandContext(ctx, program, "-worker")
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(asked)), os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = unwinding
	out, err := cmd.Output()
	err = errors.Join(err, thaw(j.Freeze))
	if err != nil {
		return answer{}, fmt.Errorf("worker: %w", err)
	}
	var a answer
	if err := json.Unmarshal(out, &a); err != nil {
		return answer{}, fmt.Errorf("worker: %w: %q", err, out)
	}
	if a.Err != "" {
		return a, errors.New(a.Err)
	}
	return a, nil
}

// worker reads a job, does it and prints the answer.
func worker(ctx context.Context, in io.Reader, out io.Writer) error {
	var j job
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return err
	}
	a, err := j.do(ctx)
	if err != nil {
		a.Err = fmt.Sprintf("%s, %s, %d callers: %v", j.Kind, j.Design, j.Callers, err)
	}
	return json.NewEncoder(out).Encode(a)
}

func (j job) do(ctx context.Context) (answer, error) {
	if j.Kind == testsJob {
		return runTests(ctx)
	}
	d, err := designNamed(j.Design)
	if err != nil {
		return answer{}, err
	}
	switch j.Kind {
	case loadJob:
		return j.load(ctx, d)
	case contentionJob:
		return j.contend(ctx, d)
	case distanceJob:
		return j.distance(ctx, d)
	case mixJob:
		return j.mix(ctx, d)
	case mixedJob:
		return j.mixed(ctx)
	case scaleJob:
		return j.scale(ctx)
	case crowdJob:
		return j.crowd(ctx, d)
	case stallJob:
		return j.stall(ctx, d)
	case idleJob:
		return j.idle(ctx, d)
	}
	return answer{}, fmt.Errorf("there is no job %q", j.Kind)
}

// freeze stops the processes it is to stop, and returns how to let them go on.
func (j job) freeze() (thawAgain func() error, err error) {
	for _, pid := range j.Freeze {
		err = cmp.Or(err, syscall.Kill(pid, syscall.SIGSTOP))
	}
	return func() error { return thaw(j.Freeze) }, err
}
