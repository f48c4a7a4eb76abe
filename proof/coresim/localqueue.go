package coresim

import "github.com/quorumlock/quorumlock/internal/quorum/engine"

// localQueue returns the local queue of a worker's lock, the same one with and without renewal.
func (k *worker) localQueue() *engine.LocalQueue[*worker] {
	s := k.step
	q := &k.process.queues[4*s.Names+s.Read]
	q.Shared = s.Read == s.Names+1
	return q
}

// enqueue makes the worker wait until the local queue admits it. A TryLock does not wait.
func (k *worker) enqueue() {
	if k.step.Try {
		k.try()
		return
	}
	q := k.localQueue()
	k.place = &engine.Place[*worker]{Caller: k, Ticket: k.ticket}
	q.Push(k.place)
	admit(q)
}

// dequeue takes a worker out of its local queue, admitted or not.
func (k *worker) dequeue() {
	if k.place != nil {
		k.place.Leave()
		k.place = nil
		admit(k.localQueue())
	}
}

func admit(q *engine.LocalQueue[*worker]) {
	for t := q.Admit(); t != nil; t = q.Admit() {
		t.Caller.try()
	}
}
