package coresim

import "slices"

// maxAdmitted is the number of callers that one process sends to the nodes, as in package quorum.
const maxAdmitted = 3

// localQueue holds the callers of one process that wait for one lock, in the order of their calls.
// As in package quorum, only the first few go to the nodes.
type localQueue []*worker

// localQueueOf returns the local queue of a worker's lock, the same one with and without renewal.
// It returns nil for a TryLock, and for calls that share the whole lock: they do not wait for each
// other.
func (k *worker) localQueueOf() *localQueue {
	s := k.step
	if s.Try || s.Read == s.Names+1 {
		return nil
	}
	return &k.process.queues[4*s.Names+s.Read]
}

// enqueue makes the worker wait until the queue admits it.
func (k *worker) enqueue() {
	q := k.localQueueOf()
	if q == nil {
		k.try()
		return
	}
	*q = append(*q, k)
	q.admit()
}

// dequeue takes a worker out of its local queue, admitted or not, and admits the next.
func (k *worker) dequeue() {
	if q := k.localQueueOf(); q != nil {
		*q = slices.DeleteFunc(*q, func(o *worker) bool { return o == k })
		q.admit()
	}
}

func (q *localQueue) admit() {
	for i := 0; i < min(len(*q), maxAdmitted); i++ {
		k := (*q)[i]
		if k.call == nil {
			k.try()
		}
		if k.sent == 0 {
			return
		}
	}
}
