package engine

import (
	"cmp"
	"container/list"
	"slices"
	"time"
)

// Admission decides when an attempt is sent. An attempt needs a place: room at a quorum of its
// nodes. Without room, it waits in the process, unsent, in the order of the calls. There it costs
// the nodes nothing, and giving up leaves nothing. Only the first attempt of a call needs a place:
// what is begun is finished.
//
// N is a node, and C the caller of an attempt. The zero value admits as many attempts as the first
// limits of its nodes allow.
type Admission[N comparable, C any] struct {
	limits map[N]*Limit
	lines  []*line[N, C] // those with an attempt, in the order of their first attempts
	length int
	number uint64 // of the last attempt
}

// line has the attempts that wait for the same quorums of the same nodes. None of them waits behind
// an attempt that needs a node that it does not need itself.
type line[N comparable, C any] struct {
	nodes []N
	need  int
	queue list.List // of *Applicant
}

// Applicant is an attempt that waits for its place.
type Applicant[N comparable, C any] struct {
	Caller C
	lock   Quorum[N]
	number uint64 // in the order of the calls
	line   *line[N, C]
	at     *list.Element
}

// Quorum is a lock whose attempts need a place.
type Quorum[N comparable] interface {
	Nodes() []N                // each once
	Need() int                 // how many of Nodes form a quorum; 0 if it depends on which
	IsQuorum(some []bool) bool // whether those of Nodes with true are a quorum
}

// Enter gives an attempt its place if there is room and no earlier attempt waits for it. Otherwise
// it returns false; then call Wait.
func (a *Admission[N, C]) Enter(lock Quorum[N]) bool {
	if len(a.lines) > 0 && (a.lineOf(lock) != nil || overlaps(lock.Nodes(), a.claimed(nil))) {
		return false
	}
	return a.take(lock)
}

// Wait adds an attempt to those that wait. Admit removes it, or Leave.
func (a *Admission[N, C]) Wait(lock Quorum[N], caller C) *Applicant[N, C] {
	q := a.lineOf(lock)
	if q == nil {
		q = &line[N, C]{nodes: lock.Nodes(), need: lock.Need()}
		a.lines = append(a.lines, q)
	}
	a.number++
	t := &Applicant[N, C]{Caller: caller, lock: lock, number: a.number, line: q}
	t.at = q.queue.PushBack(t)
	a.length++
	return t
}

func (a *Admission[N, C]) lineOf(lock Quorum[N]) *line[N, C] {
	for _, q := range a.lines {
		if q.need == lock.Need() && slices.Equal(q.nodes, lock.Nodes()) {
			return q
		}
	}
	return nil
}

func (q *line[N, C]) first() *Applicant[N, C] { return q.queue.Front().Value.(*Applicant[N, C]) }

// Admit gives the earliest attempt with room its place, and returns it; nil if there is none.
func (a *Admission[N, C]) Admit() (admitted *Applicant[N, C]) {
	a.claimed(func(t *Applicant[N, C]) bool {
		if a.take(t.lock) {
			admitted = t
		}
		return admitted == nil
	})
	if admitted != nil {
		a.Leave(admitted)
	}
	return admitted
}

// claimed returns the nodes at which an attempt waits for others to finish: later ones must not
// take that room, or the attempt would never have room at all of its nodes at the same time. An
// attempt that lacks a failing node claims nothing. try is called with the first attempt of each
// line, in the order of the calls, unless an earlier one claims one of its nodes; false ends the
// search.
func (a *Admission[N, C]) claimed(try func(*Applicant[N, C]) bool) (nodes []N) {
	for _, q := range a.lines {
		if overlaps(q.nodes, nodes) {
			continue
		}
		t := q.first()
		if try != nil && !try(t) {
			return nodes
		}
		if len(a.lines) > 1 || try == nil {
			if t.lock.IsQuorum(a.are(q.nodes, (*Limit).finishes)) {
				nodes = append(nodes, q.nodes...)
			}
		}
	}
	return nodes
}

func overlaps[N comparable](some, others []N) bool {
	return len(others) > 0 && slices.ContainsFunc(some, func(n N) bool { return slices.Contains(others, n) })
}

// are returns for each node whether is holds for its limit.
func (a *Admission[N, C]) are(nodes []N, is func(*Limit) bool) []bool {
	some := make([]bool, len(nodes))
	for i, n := range nodes {
		some[i] = is(a.Limit(n))
	}
	return some
}

// Leave removes an attempt that waits. Call Admit next.
func (a *Admission[N, C]) Leave(t *Applicant[N, C]) {
	isFirst := t.line.first() == t
	t.line.queue.Remove(t.at)
	a.length--
	if t.line.queue.Len() == 0 {
		a.lines = slices.DeleteFunc(a.lines, func(q *line[N, C]) bool { return q == t.line })
	} else if isFirst && len(a.lines) > 1 {
		slices.SortFunc(a.lines, func(p, q *line[N, C]) int { return cmp.Compare(p.first().number, q.first().number) })
	}
}

// Without returns the attempts that wait for nodes without a quorum for which is holds. It may also
// return other attempts, for locks whose Need is 0.
func (a *Admission[N, C]) Without(is func(N) bool) (some []*Applicant[N, C]) {
	for _, q := range a.lines {
		has := make([]bool, len(q.nodes))
		for i, n := range q.nodes {
			has[i] = is(n)
		}
		if q.need > 0 && q.first().lock.IsQuorum(has) {
			continue
		}
		for e := q.queue.Front(); e != nil; e = e.Next() {
			some = append(some, e.Value.(*Applicant[N, C]))
		}
	}
	return some
}

// Length returns the number of attempts that wait.
func (a *Admission[N, C]) Length() int { return a.length }

// take counts an attempt at each node of the lock, if a quorum of the nodes has room.
func (a *Admission[N, C]) take(lock Quorum[N]) bool {
	nodes := lock.Nodes()
	if slices.ContainsFunc(nodes, func(n N) bool { return !a.Limit(n).hasRoom() }) && !lock.IsQuorum(a.are(nodes, (*Limit).hasRoom)) {
		return false
	}
	for _, n := range nodes {
		l := a.Limit(n)
		l.flight++
		l.peak = max(l.peak, l.flight)
	}
	return true
}

// Limit returns the limit of a node.
func (a *Admission[N, C]) Limit(n N) *Limit {
	l := a.limits[n]
	if l == nil {
		if a.limits == nil {
			a.limits = make(map[N]*Limit)
		}
		l = &Limit{most: firstLimit}
		a.limits[n] = l
	}
	return l
}

// The bounds of a limit, and its first value.
const (
	leastLimit = 8
	firstLimit = 16
	mostLimit  = 4096
)

// queueing is how long an attempt may take beyond a round trip. Within that time, many attempts
// share a pipeline, so a node reaches its full rate. More would only wait at the node.
const queueing = 25 * time.Millisecond

const (
	tripFor    = 10 * time.Second // how long a measured round trip counts
	measureFor = time.Second      // how long a node may take for the next measurement

	// quiet is the number of attempts in flight with which a round trip is undisturbed. It is more
	// than leastLimit, since attempts that have room at a quorum go to the other nodes, too.
	quiet = leastLimit * 3 / 2
)

// Limit is the number of attempts that may be in flight at a node. By Little's law, it is how many
// the node answers within an undisturbed round trip plus queueing. Like BBR (Cardwell et al., ACM
// Queue 2016), it follows the rate of the answers and the round trip, not losses. Like BBR, it
// measures the round trip without a queue: the mean while at most quiet attempts are in
// flight. If more have been in flight for tripFor, it first lets the others land.
//
// A limit at most doubles in a round trip, and always admits one attempt. So it is back a few round
// trips after the node recovers.
type Limit struct {
	most   float64
	flight int
	held   bool          // see Hold
	silent bool          // the last attempts have failed: one at a time finds out whether the node answers
	pause  time.Duration // see Pause

	trip      time.Duration // undisturbed; 0 if unknown
	tripAt    time.Duration // when it was measured
	measuring bool          // at most leastLimit attempts until it is measured again

	// The period since the last change.
	since    time.Duration
	peak     int // most attempts in flight
	answered int
	took     time.Duration // of the answered ones, in all
}

// hasRoom reports whether another attempt may be sent.
func (l *Limit) hasRoom() bool {
	flight, most := l.Flight()
	return flight < most
}

// Flight returns the number of attempts in flight, and their present limit.
func (l *Limit) Flight() (flight, most int) {
	switch {
	case l.held || l.silent:
		return l.flight, 1
	case l.measuring:
		return l.flight, min(leastLimit, int(l.most))
	}
	return l.flight, int(l.most)
}

// finishes reports whether the attempts in flight will make room soon.
func (l *Limit) finishes() bool { return !l.held && !l.silent }

// Hold leaves room for one attempt at a time while the renewals of the node are behind.
func (l *Limit) Hold(behind bool) { l.held = behind }

// Return gives a place back that was not used. Call Admit next.
func (l *Limit) Return() { l.flight-- }

// The pause after a failure doubles with each further one.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 200 * time.Millisecond
)

// Pause returns how long an attempt that has failed keeps its place: call Landed after that. A node
// that refuses connections fails attempts at once, and would otherwise be asked by all callers.
func (l *Limit) Pause() time.Duration {
	l.pause = min(max(2*l.pause, firstPause), lastPause)
	return l.pause
}

// Landed records the answer to an attempt, or its failure. Call Admit next.
func (l *Limit) Landed(ok bool, took, now time.Duration) {
	l.flight--
	trip := took
	if l.silent = l.silent && !ok; ok {
		l.pause = 0
		l.answered++
		l.took += took
		trip = l.took / time.Duration(l.answered)
	}
	trip = max(trip, l.trip) // the first answers after a pause come early
	if now-l.since < trip {  // the answers are those of the last limit
		return
	}
	want, measuring := l.most/2, l.measuring
	if l.silent = l.answered == 0; !l.silent {
		l.measure(l.took/time.Duration(l.answered), now)
		want = float64(l.peak) * float64(l.trip+max(queueing, l.trip/4)) / float64(max(trip, l.trip, 1))
	}
	// A node that was not used to its limit may be able to do more, or not.
	if used := l.peak >= int(l.most); !measuring && (used || want < l.most) && (l.trip > 0 || l.silent) {
		l.most = min(max(want, l.most/2, leastLimit), 2*l.most, mostLimit)
	}
	l.since, l.peak, l.answered, l.took = now, l.flight, 0, 0
	if measuring && !l.measuring { // all room is taken at once next, and the first answers come early
		l.since += l.trip + queueing
	}
}

// measure notes the mean round trip of a period. Even without a queue, round trips differ, so the
// shortest would be too short. A trip after a stall may be long, so the noted trip at most doubles.
func (l *Limit) measure(trip, now time.Duration) {
	switch {
	case l.trip == 0 && l.peak <= quiet:
		l.trip, l.tripAt, l.measuring = trip, now, false
	case l.trip == 0 && !l.measuring: // the first attempts may have come at once
		l.tripAt, l.measuring = now-tripFor, true
	case l.peak <= quiet:
		l.trip, l.tripAt, l.measuring = min(trip, 2*max(l.trip, time.Millisecond)), now, false
	case now-l.tripAt > tripFor+measureFor: // attempts for the other nodes kept it busy
		l.trip, l.tripAt, l.measuring = cmp.Or(l.trip, trip), now, false
	case now-l.tripAt > tripFor:
		l.measuring = true
	}
}
