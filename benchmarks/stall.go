package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// after are the rates of the seconds after a stall.
var after = []metric{"1st s", "2nd s", "3rd s", "4th s", "5th s", "6th s", "7th s", "8th s"}

// recovery is how many seconds after a stall the rate should be as before.
const recovery = 2

func stalls(ctx context.Context, p plan, f *fleet) ([]*contest, error) {
	if f.store != inMemory {
		return nil, nil
	}
	var all []*contest
	for _, d := range p.stalls {
		c := &contest{scene: fmt.Sprintf("%v stall", d), turns: 3} // a turn takes up to a minute
		c.columns = append(append([]metric{before}, after...), back, heapBefore, heapMeanwhile, heapAfter, failed)
		for _, name := range []string{ours, redsyncName, rueidisName, setnxDelName} {
			e := f.entryOf(ctx, crowdNodes, name, job{Kind: stallJob, Callers: p.stalled, Warm: p.second, Time: p.second, Hold: d})
			e.job.Freeze = e.job.Servers
			c.entries = append(c.entries, e)
		}
		c.promises = []promise{atLeast(90, ours, back), atMost(110, ours, heapKept)}
		all = append(all, c)
	}
	return all, nil
}

// peakCallers and demand say what the callers of a stall ask for: a quarter of the pairs that at
// most so many callers in a loop do.
const (
	peakCallers = 256
	demand      = 0.25
)

// stall has many callers ask for a part of what the nodes can do, stops all nodes for j.Hold, and
// counts the pairs in each j.Time afterwards. Like crowd, it closes no client.
func (j job) stall(ctx context.Context, d design) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute+j.Hold+20*j.Time)
	defer cancel()
	clients, err := d.openAll(j.Addrs, 1)
	if err != nil {
		return answer{}, err
	}
	if err := connect(ctx, clients); err != nil {
		return answer{}, err
	}
	peak, err := job{Callers: min(peakCallers, j.Callers), Warm: j.Warm, Time: j.Time}.run(ctx, clients)
	if err != nil {
		return answer{}, err
	}
	w := waves{pause: time.Duration(float64(j.Callers) / (demand * peak.Figures[pairs]) * float64(time.Second))}
	take := j.taking(clients[0])
	calling, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	for i := range j.Callers {
		running.Go(func() { w.run(calling, fmt.Sprintf("wave:%d", i), take) })
	}
	f, err := j.watchStall(ctx, &w)
	stop()
	within(unwinding, running.Wait)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		f[failed] = float64(w.locks.Count + w.unlocks.Count)
	}
	return answer{Figures: f, Failure: told(w.locks, w.unlocks)}, err
}

// watchStall stops the nodes and lets them go on, and returns the rates and the memory.
func (j job) watchStall(ctx context.Context, w *waves) (f figures, err error) {
	f = make(figures)
	var asleep error
	sleep := func(d time.Duration) { asleep = errors.Join(asleep, pause(ctx, d)) }
	rate := func(n int) float64 {
		from, began := w.count(), time.Now()
		sleep(time.Duration(n) * j.Time)
		return float64(w.count()-from) / time.Since(began).Seconds()
	}
	sleep(2 * j.Warm)
	f[before] = rate(3)
	f[heapBefore] = heap()
	thawAgain, err := j.freeze()
	if err == nil {
		sleep(j.Hold)
		f[heapMeanwhile] = heap()
	}
	if err := errors.Join(err, thawAgain()); err != nil {
		return nil, err
	}
	var later []float64
	for i, m := range after {
		f[m] = rate(1)
		if i >= recovery {
			later = append(later, f[m])
		}
	}
	f[heapAfter] = heap()
	f[heapKept] = 100 * f[heapAfter] / f[heapBefore]
	if f[before] > 0 {
		f[back] = 100 * median(later) / f[before]
	}
	return f, asleep
}

// heap is the memory of the living objects and of the stacks, in MB.
func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc+m.StackInuse) / 1e6
}

// waves are callers that come again at random times.
type waves struct {
	pause time.Duration // the mean time from a pair to the next

	mu             sync.Mutex
	pairs          int
	locks, unlocks failures
}

func (w *waves) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pairs
}

// run takes and releases a lock until ctx is done. Its pauses are exponential: however many callers
// a stall has made come at once, their next pairs are as far apart as before.
func (w *waves) run(ctx context.Context, name string, take func(context.Context, string) (func(context.Context) error, error)) {
	for pause(ctx, time.Duration(rand.ExpFloat64()*float64(w.pause))) == nil {
		var unlocked error
		unlock, err := take(ctx, name)
		if err == nil {
			unlocked = unlock(ctx)
		}
		if ctx.Err() != nil {
			return // the end, which is no failure
		}
		w.mu.Lock()
		switch {
		case err != nil:
			w.locks.add(1, err.Error())
		case unlocked != nil:
			w.unlocks.add(1, unlocked.Error())
		default:
			w.pairs++
		}
		w.mu.Unlock()
	}
}
