package transport

import "iter"

// queue is a list of requests. A request can leave it at any time.
type queue struct {
	first, last *request
	unordered   bool // a limit may end before that of an earlier request
}

// push adds a request behind all others.
func (q *queue) push(t *request) {
	t.before, t.behind = q.last, nil
	if q.last == nil {
		q.first, q.unordered = t, false
	} else {
		q.last.behind = t
		q.unordered = q.unordered || t.limit != q.last.limit || t.queued.Before(q.last.queued)
	}
	q.last = t
}

// pushFront puts a request before all others.
func (q *queue) pushFront(t *request) {
	q.unordered = q.first != nil
	t.before, t.behind = nil, q.first
	if q.first == nil {
		q.last = t
	} else {
		q.first.before = t
	}
	q.first = t
}

// remove removes a request.
func (q *queue) remove(t *request) {
	if t.before == nil {
		q.first = t.behind
	} else {
		t.before.behind = t.behind
	}
	if t.behind == nil {
		q.last = t.before
	} else {
		t.behind.before = t.before
	}
	t.before, t.behind = nil, nil
}

// all returns the requests in their order. The loop may remove the current request.
func (q *queue) all() iter.Seq[*request] {
	return func(yield func(*request) bool) {
		for t := q.first; t != nil; {
			next := t.behind
			if !yield(t) {
				return
			}
			t = next
		}
	}
}
