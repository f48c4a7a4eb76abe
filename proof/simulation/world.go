package simulation

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// world is one run of one plan. It lives in a bubble of testing/synctest.
type world struct {
	plan   *Plan
	dice   dice
	began  time.Time
	nodes  []*node
	list   []*process
	procs  map[string]*process // by the uuid of their owners
	parked map[string]string   // the aliases of the owners of detached holds
	watch  *watch
	post   *post

	mu      sync.Mutex // one for all: nothing waits while it has it
	conns   int        // opened so far
	bundles int        // run so far
	events  []event
	failed  []Violation
	store   map[string]*store
	history history
	inJava  bool // Java has x
}

// event is a line of the trace.
type event struct {
	at   time.Duration
	text string
}

// Violation is an invariant that did not hold.
type Violation struct {
	At        time.Duration
	Invariant string
	Text      string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: at %v, %s", v.Invariant, v.At, v.Text)
}

// Outcome is the outcome of a run.
type Outcome struct {
	Violations []Violation
	Grants     int
	Scripts    int
	Bundles    int // run; Scripts includes their calls
	Trace      string
	Hash       uint64 // of the trace
}

// run runs a plan to its end. It is called in a bubble.
func run(p *Plan) (out Outcome) {
	w := &world{plan: p, dice: dice(mixed(p.Seed)), began: time.Now(), procs: make(map[string]*process), parked: make(map[string]string), store: make(map[string]*store)}
	w.watch, w.post = newWatch(w), newPost()
	for i, c := range p.Clocks {
		w.nodes = append(w.nodes, newNode(w, i, clock{began: w.began, zero: w.began.Add(c.Offset), rate: c.Rate}))
	}
	for _, f := range p.Faults {
		if n := w.nodes[f.Node]; f.Kind == several && n.twin == nil {
			n.twin = newNode(w, f.Node, n.clock)
			n.twin.isTwin = true
		}
	}
	for i, pp := range p.Processes {
		proc, err := newProcess(w, i, pp)
		if err != nil {
			w.violate(sound, "%v", err)
			return w.outcome()
		}
		w.list = append(w.list, proc)
	}
	ctx, stop := context.WithCancel(context.Background())
	var audits, work, post, waiting sync.WaitGroup
	gone := make(chan struct{})
	post.Go(func() { w.run(gone) })
	audits.Go(func() { w.watch.audits(ctx) })
	for i, wp := range p.Workers {
		work.Go(func() { newWorker(w, i, w.list[wp.Process]).work(ctx, wp.Steps) })
	}
	w.waitForLatch(ctx, &waiting)
	if len(p.Java) > 0 {
		proc, lock, end := w.javaProcess()
		work.Go(func() {
			defer end()
			w.useJava(newWorker(w, 50, proc), lock)
		})
	}
	for i, f := range p.Faults {
		work.Go(func() { w.suffer(f, i) })
	}
	work.Wait()
	if rest := time.Until(w.began.Add(p.Length + p.SlowBy)); rest > 0 {
		time.Sleep(rest) // until all that was sent has arrived
	}
	last := w.probe()
	w.watch.settled()
	w.rushes(last)
	w.openLatch(last, &waiting, stop)
	stop()
	audits.Wait()
	if p.Idle {
		w.afterIdleTimes()
	}
	w.watch.tried()
	w.end()
	close(gone)
	post.Wait()
	return w.outcome()
}

// afterIdleTimes has every live process lock x and s once: when token counters have ended at no
// node, at some nodes, and at all nodes.
func (w *world) afterIdleTimes() {
	w.list = slices.DeleteFunc(w.list, func(p *process) bool {
		if p.dead { // its retries would probe the nodes twice a second
			w.closeProcess(p)
		}
		return p.dead
	})
	g := newGenerator(w.plan.Seed ^ 0x1d1e)
	for _, idle := range []time.Duration{g.between(0, 2*time.Minute), g.between(2*time.Minute, 5*time.Minute), g.between(5*time.Minute, time.Hour), 28 * time.Hour} {
		time.Sleep(idle)
		for i, p := range w.list {
			newWorker(w, 30+i, p).step(context.Background(), Step{Name: "x", Limit: time.Hour})
			if w.plan.Permits > 0 {
				newWorker(w, 30+i, p).step(context.Background(), Step{Name: semaphore, Limit: time.Hour})
			}
		}
	}
	for _, p := range w.list {
		if n, err := p.latch(true).Count(context.Background()); w.plan.Latch > 0 && (n != 0 || err != nil) {
			w.violate(nothingStays, "after its retention, the latch has %d ids for %v: %v", n, p, p.aliased(err))
		}
	}
}

// end sees to it that nothing is left.
func (w *world) end() {
	for _, p := range w.list {
		w.closeProcess(p)
	}
	// Also for go-redis's redial of a dead node, which looks once a second.
	time.Sleep(w.watch.quiet())
	w.mu.Lock()
	for _, n := range w.nodes {
		n.tick()
		for _, k := range n.redis.Keys() {
			if k == ageKey {
				continue
			}
			if !strings.HasPrefix(k, "redisson_lock_token:") {
				w.violateLocked(nothingStays, "%v has %s", n, k)
			} else if n.redis.TTL(k) <= 0 {
				w.violateLocked(nothingStays, "%v has %s without an expiry", n, k)
			}
		}
	}
	w.mu.Unlock()
	for _, n := range w.nodes {
		n.close()
	}
}

func (w *world) closeProcess(p *process) {
	if err := p.close(); err != nil {
		w.violate(sound, "%v: %v", p, err)
	}
}

func (w *world) now() time.Duration { return time.Since(w.began) }

// faulty reports whether messages may still be lost.
func (w *world) faulty() bool { return w.now() < w.plan.Length }

// delay is how long a message takes.
func (w *world) delay(d dice) time.Duration {
	took := w.plan.Latency/2 + d.of("delay").below(w.plan.Latency) + 1
	if w.faulty() && d.of("slow").share() < w.plan.Slow {
		took += d.of("by").below(w.plan.SlowBy)
	}
	return took
}

// suffer has a fault happen. Faults are some ns apart from everything else.
func (w *world) suffer(f Fault, number int) {
	time.Sleep(f.At + time.Duration(number+1)*17)
	n, p := w.nodes[f.Node], w.list[f.Process]
	path := p.paths[f.Node]
	w.mu.Lock()
	w.trace(fmt.Sprintf("%v of n%d, p%d for %v", f.Kind, f.Node+1, f.Process+1, f.For))
	switch f.Kind {
	case crash, crashLosing, promote:
		n.crash()
	case freeze:
		n.freeze(w.dice.of("freeze", strconv.Itoa(number)))
	case evict:
		n.tick()
		w.lose(n, f.Keys)
	case flushScripts:
		clear(n.loaded)
	case stepBack:
		n.step(-f.By)
	case stepForward:
		n.step(f.By)
	case cutBoth:
		path.cutThere, path.cutBack = true, true
	case cutThere:
		path.cutThere = true
	case cutBack:
		path.cutBack = true
	case stall:
		path.stall()
	case pause:
		p.pause()
	case die:
		p.die()
	case setWall:
		p.step(f.By)
	case forge:
		n.forge(p)
	case several:
		n.several = true
	}
	w.mu.Unlock()
	time.Sleep(f.For)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace(fmt.Sprintf("end of %v of n%d, p%d", f.Kind, f.Node+1, f.Process+1))
	switch f.Kind {
	case crash, crashLosing:
		n.tick()
		if f.Kind == crashLosing {
			w.lose(n, f.Keys)
		}
		n.restart()
	case promote:
		n.tick()
		w.lose(n, f.Keys)
		n.promote()
	case freeze:
		n.thaw(w.dice.of("thaw", strconv.Itoa(number)))
	case cutBoth, cutThere, cutBack:
		path.cutThere, path.cutBack = false, false
	case stall:
		path.resume()
	case pause:
		p.resume()
	case several:
		n.several = false
		n.twin.crash()
	}
}

// ageKey is where guard.lua keeps the age of a server. The key is never lost here, so that it is
// there when it must not vouch: for the next process, or after a promotion. In coresim it is lost.
const ageKey = "quorumlock_age"

// lose takes keys away from a node.
func (w *world) lose(n *node, what string) {
	if what == "latch" || what == "all" {
		n.redis.Del(latch)
	}
	if what == "ids" || what == "all" {
		n.redis.Del(wire.LatchKey(latch))
	}
	for _, name := range []string{"x", "y", semaphore} {
		for kind, keys := range map[string][]string{
			"lock":  {name},
			"token": {wire.TokenKey(name)},
			"line":  {wire.QueueKey(name), wire.EntriesKey(name)},
			"slots": {wire.SlotsKey(name)},
		} {
			if what == kind || what == "all" {
				for _, k := range keys {
					n.redis.Del(k)
				}
			}
		}
	}
}

// trace notes an event. It is called with mu held.
func (w *world) trace(text string) {
	w.events = append(w.events, event{w.now(), text})
}

func (w *world) violate(invariant, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violateLocked(invariant, format, args...)
}

// violateLocked is violate, called with mu held.
func (w *world) violateLocked(invariant, format string, args ...any) {
	v := Violation{w.now(), invariant, fmt.Sprintf(format, args...)}
	w.trace("VIOLATION of " + v.Invariant + ": " + v.Text)
	w.failed = append(w.failed, v)
}

func (w *world) outcome() Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	// Events of one instant have no order.
	slices.SortStableFunc(w.events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.text, b.text))
	})
	var b strings.Builder
	for _, e := range w.events {
		fmt.Fprintf(&b, "%14v  %s\n", e.at, e.text)
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(b.String()))
	return Outcome{w.failed, w.watch.grants, w.watch.scripts, w.bundles, b.String(), h.Sum64()}
}
