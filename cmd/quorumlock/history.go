package main

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
)

const (
	maxSpans   = 20_000 // spans in a history
	maxTracked = 8      // holders of one lock at a time
)

// history is the record of holders and node failures of the last minutes, as observed by looks. A
// hold that begins and ends between two looks is missing. Its size is bounded: it drops the oldest
// spans first.
type history struct {
	keep  time.Duration
	began time.Time
	looks int
	locks map[string]*track // by name
	nodes []*track          // of times in which a node was not ready; in the order of the nodes
	blind track             // of times in which the holders were unknown
}

// track has the spans of a lock or a node, in the order of their beginnings.
type track struct {
	name  string
	spans []span
	look  int // the last look with an open span
}

// span is a hold, or a time in which a node was not ready.
type span struct {
	owner quorumlock.Owner
	who   string
	from  time.Time
	to    time.Time // zero for an open span
}

func newHistory(keep time.Duration) *history {
	return &history{keep: keep, began: time.Now(), locks: make(map[string]*track)}
}

func (h *history) noteNodes(nodes []topNode, now time.Time) {
	if h.nodes == nil {
		for _, n := range nodes {
			h.nodes = append(h.nodes, &track{name: n.Node})
		}
	}
	for i, n := range nodes {
		h.nodes[i].note(now, failing(!n.OK))
	}
}

// noteLocks records a survey. A survey that failed may have missed locks, so it does not end the
// holds that it missed.
func (h *history) noteLocks(locks []*topLock, succeeded bool, now time.Time) {
	h.looks++
	h.blind.note(now, failing(!succeeded))
	defer h.forget(now)
	if !succeeded {
		return
	}
	for _, l := range locks {
		t := h.locks[l.Name]
		if t == nil {
			t = &track{name: l.Name}
			h.locks[l.Name] = t
		}
		t.look = h.looks
		t.note(now, l.owners())
	}
	for _, t := range h.locks {
		if t.look != h.looks {
			t.note(now, nil)
		}
	}
}

// failing returns the party of a span that lasts during a failure.
func failing(is bool) []quorumlock.Owner {
	if is {
		return []quorumlock.Owner{"failed"}
	}
	return nil
}

// note records the active parties, and ends the spans of others.
func (t *track) note(now time.Time, owners []quorumlock.Owner) {
	going := make(map[quorumlock.Owner]bool)
	for i := range t.spans {
		s := &t.spans[i]
		if !s.to.IsZero() {
			continue
		}
		going[s.owner] = slices.Contains(owners, s.owner)
		if !going[s.owner] {
			s.to = now
			delete(going, s.owner)
		}
	}
	for _, o := range owners {
		if !going[o] && len(going) < maxTracked {
			going[o] = true
			t.spans = append(t.spans, span{owner: o, who: who(o), from: now})
		}
	}
}

// forget drops old spans, and further ones if there are too many.
func (h *history) forget(now time.Time) {
	oldest := now.Add(-h.keep)
	var ends []time.Time
	for _, t := range h.locks {
		for _, s := range t.spans {
			if s.to.After(oldest) {
				ends = append(ends, s.to)
			}
		}
	}
	if over := len(ends) - maxSpans; over > 0 {
		slices.SortFunc(ends, time.Time.Compare)
		oldest = ends[over-1]
	}
	for _, t := range append(h.nodes, &h.blind) {
		t.drop(oldest)
	}
	for name, t := range h.locks {
		if t.drop(oldest); len(t.spans) == 0 {
			delete(h.locks, name)
		}
	}
}

func (t *track) drop(oldest time.Time) {
	t.spans = slices.DeleteFunc(t.spans, func(s span) bool { return !s.to.IsZero() && !s.to.After(oldest) })
}

// rows returns copies of at most that many tracks to draw: first those in names, then those with
// the latest holds.
func (h *history) rows(names []string, match string, most int) (locks []track, left int) {
	drawn := make(map[string]bool)
	var rest []*track
	for _, name := range names {
		if t := h.locks[name]; t != nil && !drawn[name] && len(t.spans) > 0 {
			drawn[name] = true
			if len(locks) < most {
				locks = append(locks, t.copy())
			} else {
				left++
			}
		}
	}
	for name, t := range h.locks {
		if !drawn[name] && len(t.spans) > 0 && strings.Contains(name, match) {
			rest = append(rest, t)
		}
	}
	slices.SortFunc(rest, func(a, b *track) int {
		return cmp.Or(b.spans[len(b.spans)-1].from.Compare(a.spans[len(a.spans)-1].from), strings.Compare(a.name, b.name))
	})
	for _, t := range rest {
		if len(locks) < most {
			locks = append(locks, t.copy())
		} else {
			left++
		}
	}
	// rows that change places are hard to read
	slices.SortFunc(locks, func(a, b track) int { return strings.Compare(a.name, b.name) })
	return locks, left
}

// window returns the age of the oldest span to draw, in whole minutes.
func (h *history) window(now time.Time) time.Duration {
	return min(max((now.Sub(h.began)+time.Minute-1).Truncate(time.Minute), time.Minute), h.keep)
}

func (t *track) copy() track { return track{t.name, slices.Clone(t.spans), t.look} }
