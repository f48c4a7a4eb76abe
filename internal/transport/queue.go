package transport

import "iter"

// queue is a list of tasks, each of which can leave it at any time.
type queue struct{ first, last *task }

// push adds a task behind all others.
func (q *queue) push(t *task) {
	t.before, t.behind = q.last, nil
	if q.last == nil {
		q.first = t
	} else {
		q.last.behind = t
	}
	q.last = t
}

// pushFront puts a task before all others.
func (q *queue) pushFront(t *task) {
	t.before, t.behind = nil, q.first
	if q.first == nil {
		q.last = t
	} else {
		q.first.before = t
	}
	q.first = t
}

// remove takes a task out.
func (q *queue) remove(t *task) {
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

// all has the tasks in their order. The one at hand may be removed.
func (q *queue) all() iter.Seq[*task] {
	return func(yield func(*task) bool) {
		for t := q.first; t != nil; {
			next := t.behind
			if !yield(t) {
				return
			}
			t = next
		}
	}
}
