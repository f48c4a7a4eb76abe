package engine

import (
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
	lines  []*line[N, C] // those with an attempt
	length int
}

// line has the attempts that wait for room at the same nodes, so that no attempt waits behind one
// for other nodes.
type line[N comparable, C any] struct {
	nodes []N
	queue list.List // of *Applicant
}

// Applicant is an attempt that waits for its place.
type Applicant[N comparable, C any] struct {
	Caller C
	lock   Quorum[N]
	line   *line[N, C]
	at     *list.Element
}

// Quorum is a lock whose attempts need a place.
type Quorum[N comparable] interface {
	Nodes() []N                // each once
	IsQuorum(some []bool) bool // whether those of Nodes with true are a quorum
}

// Enter gives an attempt its place if there is room and no earlier attempt waits for the same
// nodes. Otherwise it returns false; then call Wait.
func (a *Admission[N, C]) Enter(lock Quorum[N]) bool { return a.lineOf(lock) == nil && a.take(lock) }

// Wait adds an attempt to those that wait. Admit removes it, or Leave.
func (a *Admission[N, C]) Wait(lock Quorum[N], caller C) *Applicant[N, C] {
	q := a.lineOf(lock)
	if q == nil {
		q = &line[N, C]{nodes: lock.Nodes()}
		a.lines = append(a.lines, q)
	}
	t := &Applicant[N, C]{Caller: caller, lock: lock, line: q}
	t.at = q.queue.PushBack(t)
	a.length++
	return t
}

func (a *Admission[N, C]) lineOf(lock Quorum[N]) *line[N, C] {
	for _, q := range a.lines {
		if slices.Equal(q.nodes, lock.Nodes()) {
			return q
		}
	}
	return nil
}

func (q *line[N, C]) first() *Applicant[N, C] { return q.queue.Front().Value.(*Applicant[N, C]) }

// Admit gives the first attempt of a line its place, and returns it; nil if there is no room.
func (a *Admission[N, C]) Admit() *Applicant[N, C] {
	for _, q := range a.lines {
		if t := q.first(); a.take(t.lock) {
			a.Leave(t)
			return t
		}
	}
	return nil
}

// Leave removes an attempt that waits. Call Admit next.
func (a *Admission[N, C]) Leave(t *Applicant[N, C]) {
	t.line.queue.Remove(t.at)
	a.length--
	if t.line.queue.Len() == 0 {
		a.lines = slices.DeleteFunc(a.lines, func(q *line[N, C]) bool { return q == t.line })
	}
}

// Without returns the attempts that wait for nodes of which no quorum has is. All attempts of a
// line need the same quorum.
func (a *Admission[N, C]) Without(is func(N) bool) (some []*Applicant[N, C]) {
	for _, q := range a.lines {
		has := make([]bool, len(q.nodes))
		for i, n := range q.nodes {
			has[i] = is(n)
		}
		if q.first().lock.IsQuorum(has) {
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
	for _, n := range nodes {
		if a.Limit(n).hasRoom() {
			continue
		}
		some := make([]bool, len(nodes))
		for i, n := range nodes {
			some[i] = a.Limit(n).hasRoom()
		}
		if !lock.IsQuorum(some) {
			return false
		}
		break
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

// tripsFor is the least time for which the shortest round trip counts. If the process or the
// network has become slow, that is no queue at the node.
const tripsFor = 10 * time.Second

// Limit is the number of attempts that may be in flight at a node. By Little's law, it is how many
// the node answers within the shortest round trip plus queueing. Like BBR (Cardwell et al., ACM
// Queue 2016), it follows the rate of the answers and the shortest round trip, and not losses.
//
// A limit at most doubles in a round trip, and always admits one attempt. So it is back a few round
// trips after the node recovers.
type Limit struct {
	most   float64
	flight int
	held   bool          // see Hold
	silent bool          // the last attempts have failed: one at a time finds out whether the node answers
	pause  time.Duration // see Pause

	best, before time.Duration // the shortest round trip since bestSince, and in the time before; 0 if unknown
	bestSince    time.Duration

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
	if l.held || l.silent {
		return l.flight, 1
	}
	return l.flight, int(l.most)
}

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
		l.notice(took, now)
	}
	if now-l.since < trip { // the answers are those of the last limit
		return
	}
	want := l.most / 2
	if l.silent = l.answered == 0; !l.silent {
		want = float64(l.peak) * float64(l.shortest()+queueing) / float64(max(trip, 1))
	}
	// A node that was not used to its limit may be able to do more, or not.
	if used := l.peak >= int(l.most); used || want < l.most {
		l.most = min(max(want, l.most/2, leastLimit), 2*l.most, mostLimit)
	}
	l.since, l.peak, l.answered, l.took = now, l.flight, 0, 0
}

// notice records a round trip.
func (l *Limit) notice(took, now time.Duration) {
	if l.best == 0 || now-l.bestSince > tripsFor {
		l.before, l.best, l.bestSince = l.best, took, now
	}
	l.best = min(l.best, took)
}

// shortest returns the shortest round trip lately.
func (l *Limit) shortest() time.Duration {
	if l.before > 0 {
		return min(l.best, l.before)
	}
	return l.best
}
