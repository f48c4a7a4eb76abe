package simulation

import (
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// watch checks every script that runs and knows every hold. The world's mutex guards all of it.
type watch struct {
	world   *world
	grants  int
	scripts int
	owners  map[string]*activity // of attempts, by their alias
	waiters map[string]*activity
	ran     map[string]bool // that may run once only: script, node, lock and owner
	holds   []*hold         // granted and not released, in the order of their grants
	names   map[string]*granted
	calls   []*call
	multi   bool // some wait for several locks
	past    []span
	refuse  []span // TryLocks that were refused because the lock is held
	waited  []span // calls of callers that want a lock alone

	lastMoves map[nameSet]time.Time // by name: see progress
}

// activity is the activity for an owner or a waiter.
type activity struct {
	proc     *process
	first    time.Time
	last     time.Time // when it was last sent, or run
	pending  map[*node]int
	since    map[cell]promise   // the node's last promise to the owner
	released map[cell]time.Time // when the last release that has arrived was sent
	late     bool               // a message was on its way for longer than a pending release waits
	inUse    bool               // a lease has been returned and is not unlocked
	granted  bool               // a lease has been returned
	dead     bool               // given up by a holder that was killed
}

// promise is a TTL that a node gave a lock.
type promise struct {
	at  time.Time
	ttl time.Duration
}

type cell struct {
	node *node
	name string
}

// granted has the grants of a lock.
type granted struct {
	count int                  // in the order of time
	alone int                  // exclusive ones among them
	all   map[uint64]time.Time // when a token was granted to an exclusive holder
	read  map[uint64]time.Time // the same for sharers
}

func newGranted() *granted {
	return &granted{all: make(map[uint64]time.Time), read: make(map[uint64]time.Time)}
}

func newWatch(w *world) *watch {
	t := &watch{
		world: w, owners: make(map[string]*activity), waiters: make(map[string]*activity), ran: make(map[string]bool),
		names: map[string]*granted{"x": newGranted()}, // which probe takes

		lastMoves: make(map[nameSet]time.Time),
	}
	for _, wp := range w.plan.Workers {
		for _, s := range wp.Steps {
			if s.Latch != nothing {
				continue
			}
			names := strings.Split(s.Name, "+")
			t.multi = t.multi || len(names) > 1
			for _, name := range names {
				if t.names[name] == nil && name != semaphore {
					t.names[name] = newGranted()
				}
			}
		}
	}
	for slot := range w.plan.Permits {
		t.names[slotName(slot)] = newGranted()
	}
	return t
}

// active records that a script for an owner or waiter was sent, or ran.
func (t *watch) active(m message, change func(*activity)) {
	if m.script == "" {
		return
	}
	for _, x := range []struct {
		all map[string]*activity
		who string
	}{{t.owners, m.owner}, {t.waiters, m.waiter}, {t.owners, m.heir}} {
		if x.who == "" {
			continue
		}
		a := x.all[x.who]
		if a == nil {
			a = &activity{proc: m.path.proc, first: time.Now(), pending: make(map[*node]int), since: make(map[cell]promise), released: make(map[cell]time.Time)}
			x.all[x.who] = a
		}
		a.last = time.Now()
		change(a)
	}
}

// keeps reports whether an acquire restores a hold.
func keeps(argv []string) bool { return strings.HasPrefix(argv[3], "keep") }

// asked returns the time at which the client first made the request of a message: an attempt may
// have been sent for the second time, with the script's source.
func (t *watch) asked(m message) time.Time {
	if a := t.owners[m.owner]; m.script == "acquire" && a != nil && !keeps(m.argv) {
		return a.first
	}
	return m.at
}

// overtaken reports whether a message restores a lock whose later release was faster, in the other
// lane. A repetition of the release follows after a pause.
func (t *watch) overtaken(n *node, m message) bool {
	a := t.owners[m.owner]
	if a == nil {
		return false
	}
	if at := (cell{n, m.lock}); m.script == "release" && m.at.After(a.released[at]) {
		a.released[at] = m.at
	}
	return m.script == "acquire" && keeps(m.argv) && m.at.Before(a.released[cell{n, m.lock}])
}

// sent notes a request.
func (t *watch) sent(m message) {
	t.active(m, func(a *activity) { a.pending[m.path.node]++ })
}

// received records a script that arrived and did not run.
func (t *watch) received(n *node, m message) {
	t.active(m, func(a *activity) { a.pending[n]-- })
}

// state is a node's state of a lock.
type state struct {
	// With their counts; of a shared lock, with the ms at which their shares end.
	holders map[string]string
	shared  bool
	now     int64 // ms of the node's clock
	ttl     time.Duration
	token   string
	line    map[string]float64 // tickets
	places  map[string]int64   // deadlines, ms of the node's clock
	heirs   map[string]string
	sharers map[string]bool // waiters for a share
	passed  map[string]bool // waiters that sharers may pass: sharers, and callers that only try

	// Of a semaphore: when the holds end, in ms of the node's clock; holders have their slots.
	ends   map[string]int64
	tokens map[string]string // of a semaphore, by the slot
}

func (n *node) state(name string) (s state) {
	s.now = n.clock.last.UnixMilli()
	if name == semaphore {
		n.slots(&s)
	} else if fields, err := n.redis.HKeys(name); err == nil {
		s.holders = make(map[string]string, len(fields))
		s.shared = n.redis.HGet(name, "mode") == "shared"
		for _, f := range fields {
			if f == "mode" {
				continue
			}
			value := n.redis.HGet(name, f)
			if until, _ := strconv.ParseInt(value, 10, 64); s.shared && until < s.now {
				continue // its share is over
			}
			s.holders[base(f)] = value
		}
		s.ttl = n.redis.TTL(name)
	}
	if name != semaphore {
		s.token, _ = n.redis.Get(wire.TokenKey(name))
	}
	line, err := n.redis.SortedSet(wire.QueueKey(name))
	if err != nil {
		return s
	}
	s.line = maps.Clone(line) // it changes with the key
	s.places, s.heirs, s.sharers, s.passed = make(map[string]int64), make(map[string]string), make(map[string]bool), make(map[string]bool)
	for who := range s.line {
		stored := strings.Fields(n.redis.HGet(wire.EntriesKey(name), who))
		if len(stored) > 0 {
			deadline, _, _ := strings.Cut(stored[0], ",")
			s.places[who], _ = strconv.ParseInt(deadline, 10, 64)
		}
		s.sharers[who] = name != semaphore && len(stored) > 1 && strings.Contains(stored[1], "s")
		s.passed[who] = s.sharers[who] || len(stored) > 1 && strings.HasSuffix(stored[1], "t")
		if len(stored) == 7 {
			s.heirs[who] = who + "/" + stored[5]
		}
	}
	return s
}

// before is called before a script runs.
func (t *watch) before(n *node, m message) state {
	if m.script == "" {
		t.world.violateLocked(sound, "%v ran a script of another source", n)
		return state{}
	}
	if m.script == "latch" {
		return state{}
	}
	return n.state(m.lock)
}

// after is called after a script ran, and checks its effects.
func (t *watch) after(n *node, m message, was state, reply string) {
	t.scripts++
	if m.script == "latch" {
		t.latched(n, m, reply)
		return
	}
	name, owner := m.lock, m.owner
	is := n.state(name)
	t.active(m, func(a *activity) { a.pending[n]-- })
	said := strings.ReplaceAll(strings.TrimSuffix(reply, "\r\n"), "\r\n", " ")
	words := strings.Fields(said)
	for i, word := range words {
		words[i] = t.alias(word) // the holder may be another process's
	}
	argv := m.path.proc.alias(strings.Join(m.argv, " "))
	t.world.trace(fmt.Sprintf("%v: %s %s: %s -> %s", n, m.verb(), name, argv, strings.Join(words, " ")))

	ok := false // the script succeeded for the owner
	switch m.script {
	case "acquire":
		ok = strings.HasPrefix(reply, ":") || strings.HasPrefix(reply, "*2\r\n:2") || strings.HasPrefix(reply, "*3\r\n:5") || strings.HasPrefix(reply, "*3\r\n:6")
	case "raise", "renew", "downgrade":
		ok = reply == ":1\r\n"
	case "transfer":
		attaches := m.argv[2] != "park" && m.argv[2] != "back"
		ok = attaches && (strings.HasPrefix(reply, "*3\r\n:1") || strings.HasPrefix(reply, "*3\r\n:2"))
	}
	held := is.holders[t.wire(m, owner)] != ""
	if ok && !held {
		t.world.violateLocked(yesToHolder, "%v said yes to %s of %s for %s, who does not hold", n, m.script, name, owner)
	}
	if ok && m.script != "raise" {
		t.owners[owner].since[cell{n, is.named(name, t.wire(m, owner))}] = promise{time.Now(), is.left(t.wire(m, owner))}
	}
	if name == semaphore {
		t.slotsAfter(n, m, owner, ok, was, is, reply)
	}
	t.once(n, m, name, owner)
	t.untouched(n, m, name, owner, was, is)
	t.handed(n, m, name, owner, was, is)
	t.ticketed(m)
	t.sharing(n, m, name, was, is, reply)
	t.inTurn(n, m, name, strings.HasPrefix(reply, ":") || strings.HasPrefix(reply, "*3\r\n:5"), was)
	if len(is.holders) > 0 && is.ttl <= 0 {
		t.world.violateLocked(nothingStays, "%v has %s without an expiry after %s for %s", n, name, m.script, owner)
	}
}

// wire is an alias as the nodes have it.
func (t *watch) wire(m message, alias string) string {
	return m.path.proc.known[alias]
}

// verb is the name of a script in the trace.
func (m *message) verb() string {
	if m.shares {
		return "share"
	}
	return m.script
}

// once checks that a script of which an owner sends one ran once.
func (t *watch) once(n *node, m message, name, owner string) {
	if m.script == "acquire" && keeps(m.argv) || m.script != "acquire" && m.script != "raise" {
		return
	}
	key := fmt.Sprint(m.script, n, name, owner)
	if t.ran[key] {
		t.world.violateLocked(once, "%v ran %s of %s for %s again", n, m.script, name, owner)
	}
	t.ran[key] = true
}

// heirOf matches the part of a successor's name that all successors of its waiter have.
var heirOf = regexp.MustCompile(`^.*:[0-9]+/`)

// untouched checks that a script has changed nothing of other owners and waiters.
func (t *watch) untouched(n *node, m message, name, owner string, was, is state) {
	waiter := m.waiter
	me := t.wire(m, owner)
	const rule = othersHold
	others, mine := false, "" // the successors of the waiter have this prefix
	switch {
	case waiter != "":
		mine = t.wire(m, waiter) + "/"
	case m.script == "acquire": // a Restore; a node may still have an earlier successor
		mine = heirOf.FindString(me)
	}
	for who, holds := range was.holders {
		if m.passes(who) && is.holders[who] == "" || m.parked && who == base(m.argv[0]) {
			continue
		}
		if who == me || mine != "" && strings.HasPrefix(who, mine) && (m.script == "acquire" || slices.Contains(m.argv, "all")) {
			continue
		}
		others = !was.shared && name != semaphore // the holders of a shared lock may become more
		if is.holders[who] != holds {
			t.world.violateLocked(rule, "%v: %s for %s made the count of %s in %s %q of %q", n, m.script, owner, t.alias(who), name, is.holders[who], holds)
		}
	}
	if others && (is.ttl != was.ttl || is.token != was.token || len(is.holders) > len(was.holders)) {
		t.world.violateLocked(rule, "%v: %s for %s changed %s of somebody else: from %v to %v", n, m.script, owner, name, was, is)
	}
	if len(is.token) < len(was.token) || len(is.token) == len(was.token) && is.token < was.token {
		t.world.violateLocked(tokensRise, "%v: %s for %s set the counter of %s from %s to %s", n, m.script, owner, name, was.token, is.token)
	}
	now := n.clock.last.UnixMilli()
	for who := range was.line {
		if _, stays := is.line[who]; !stays && who != t.wire(m, waiter) && was.places[who] > now && is.holders[was.heirs[who]] == "" {
			t.world.violateLocked(othersPlace, "%v: %s for %s%s took %s out of the line of %s", n, m.script, owner, waiter, t.alias(who), name)
		}
	}
}

// inTurn checks that no call is granted a lock past its waiters.
func (t *watch) inTurn(n *node, m message, name string, first bool, was state) {
	argv, p := m.argv, m.place
	if m.script != "acquire" || !first || keeps(argv) {
		return
	}
	for who := range was.holders {
		if isHeir(who) && strings.HasPrefix(who, p.waiter+"/") {
			return // it was granted before, in turn
		}
	}
	ticket := p.ticket
	now := n.clock.last.UnixMilli()
	if p.unsure && math.Abs(ticket-float64(now*1000)) > float64(wire.SameClock.Microseconds()) {
		ticket = float64(now * 1000)
	}
	// It may have joined with another ticket, before its client knew the nodes' clocks.
	if joined, queued := was.line[p.waiter]; queued {
		ticket = min(ticket, joined)
	}
	if name == semaphore {
		if before := was.before(p.waiter, ticket); before >= t.world.plan.Permits-len(was.holders) {
			t.world.violateLocked(ticketOrder, "%v granted %s to %s past %d who wait, with %v taken", n, name, m.owner, before, was.holders)
		}
		return
	}
	for who, other := range was.line {
		if was.places[who] <= now {
			continue // it has gone
		}
		if m.shares && was.passed[who] {
			continue
		}
		if argv[3] == "try" || who != p.waiter && other < ticket {
			t.world.violateLocked(ticketOrder, "%v granted %s to %s past %s", n, name, m.owner, t.alias(who))
		}
	}
}

// handed checks that the lock is granted only to the owner that asks, or by a handoff. A handoff
// goes to the successor of the first in the queue, or to those of its first sharers.
func (t *watch) handed(n *node, m message, name, owner string, was, is state) {
	for who := range is.holders {
		if len(was.holders) == 1 && m.passes(who) && m.passes(slices.Collect(maps.Keys(was.holders))[0]) {
			continue
		}
		if was.holders[who] != "" || m.script == "acquire" && who == t.wire(m, owner) {
			continue
		}
		to := ""
		for waiter, heir := range was.heirs {
			if heir == who {
				to = waiter
			}
		}
		if to == "" || m.script != "release" && m.script != "open" && m.script != "downgrade" {
			t.world.violateLocked(othersHold, "%v: %s for %s granted %s to %s", n, m.script, owner, name, t.alias(who))
			continue
		}
		now := n.clock.last.UnixMilli()
		if name == semaphore {
			if before := is.before(to, was.line[to]); before > t.world.plan.Permits-len(is.holders) {
				t.world.violateLocked(ticketOrder, "%v handed %s to %s past %d who wait, with %v taken", n, name, t.alias(to), before, is.holders)
			}
		}
		for other, ticket := range is.line { // the caller may have left
			mine := m.waiter != "" && other == t.wire(m, m.waiter)
			// This may be the waiter's own yield, after which it only tries: readers may pass it.
			passed := was.sharers[to] && (was.passed[other] || mine && is.passed[other])
			if name != semaphore && other != to && ticket < was.line[to] && was.places[other] > now && !passed {
				t.world.violateLocked(ticketOrder, "%v handed %s to %s past %s", n, name, t.alias(to), t.alias(other))
			}
		}
		if a := t.owners[t.alias(who)]; a != nil {
			a.last = time.Now()
			a.since[cell{n, is.named(name, who)}] = promise{time.Now(), is.left(who)}
		}
	}
}

func (t *watch) alias(who string) string {
	if i := strings.LastIndexByte(who, ':'); i > 0 {
		if p := t.world.procs[who[:i]]; p != nil {
			return p.alias(who)
		}
	}
	return who
}

// slack is the longest time from the last event of a call until its traces at the nodes are gone.
func (t *watch) slack() time.Duration {
	return 3*t.world.plan.NodeTimeout + 20*t.world.plan.Latency
}

// audits looks for leftovers until ctx is done.
func (t *watch) audits(ctx context.Context) {
	for ctx.Err() == nil {
		t.audit()
		select {
		case <-ctx.Done():
		case <-time.After(150 * time.Millisecond):
		}
	}
}

func (t *watch) audit() {
	const refresh = 600 * time.Millisecond
	t.world.mu.Lock()
	defer t.world.mu.Unlock()
	t.progress()
	for _, n := range t.world.nodes {
		n.tick()
		for _, name := range t.world.locks() {
			s := n.state(name)
			for who := range s.holders {
				after := t.slack()
				if isHeir(t.alias(who)) {
					after += refresh // until its waiter looks, if it is not called
				}
				if a := t.owners[t.alias(who)]; t.idle(a, n, after) {
					t.world.violateLocked(nothingLeft, "%v has %s for %s, of whom nothing was heard for %v", n, name, t.alias(who), time.Since(a.last))
				}
			}
			for who := range s.line {
				if a := t.waiters[t.alias(who)]; s.places[who] > n.clock.last.UnixMilli() && t.idle(a, n, refresh+t.slack()) {
					t.world.violateLocked(nothingLeft, "%v has %s in the line of %s, of whom nothing was heard for %v", n, t.alias(who), name, time.Since(a.last))
				}
			}
		}
	}
}

// idle reports whether an owner or waiter is done at a node, and could have released there.
func (t *watch) idle(a *activity, n *node, after time.Duration) bool {
	if a == nil || a.inUse || a.dead || a.proc.dead || a.proc.paused || a.pending[n] > 0 || time.Since(a.last) <= after {
		return false
	}
	// While a try of pending releases has no answer, the next one waits, for the limit of a try at
	// most.
	p := a.proc.paths[n.number]
	return !p.awaits() && (time.Since(p.unanswered) > after || time.Since(a.last) > 3*after) && p.troubled.Before(a.first)
}

// clears reports whether a caller's key and entry are removed from a node once the node answers.
func (a *activity) clears() bool { return a != nil && !a.dead && !a.proc.dead && !a.late }

// settled checks that nothing is left behind by calls that have returned.
func (t *watch) settled() {
	time.Sleep(t.slack() + 700*time.Millisecond)
	t.audit()
}

// quiet is how long it takes until all is expired.
func (t *watch) quiet() time.Duration {
	t.world.mu.Lock()
	defer t.world.mu.Unlock()
	longest := 2 * time.Second
	for _, n := range t.world.nodes {
		n.tick()
		for _, k := range n.redis.Keys() {
			if k != ageKey && !strings.HasPrefix(k, "redisson_lock_token:") {
				longest = max(longest, time.Duration(float64(n.redis.TTL(k))/n.clock.rate)+time.Second)
			}
		}
	}
	return longest
}
