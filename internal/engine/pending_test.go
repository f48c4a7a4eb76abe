package engine

import "testing"

// The pending releases of a node are limited, however long the node is away.
func TestPendingReleasesAreLimited(t *testing.T) {
	var r PendingReleases[int]
	for range 3 {
		for i := range maxPending {
			r.Add(i, false, false, 0)
		}
		due := r.Due(0)
		for i := range maxPending {
			r.Add(i, false, false, 0)
		}
		r.Done(due, make([]Outcome, len(due)), 0)
		if n := r.Unconfirmed(); n > maxPending {
			t.Errorf("%d releases are pending, want %d at most", n, maxPending)
		}
	}
}
