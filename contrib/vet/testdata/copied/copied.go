package copied

import (
	"sync/atomic"

	"github.com/quorumlock/quorumlock"
)

type job struct {
	lease quorumlock.Lease // want `a Lease by value is not usable`
}

var none = quorumlock.Lease{} // want `a Lease by value is not usable`

func take(l quorumlock.Lease) { // want `a Lease by value is not usable`
	_ = l
}

func give(l *quorumlock.Lease) *job {
	take(*l)        // want `a Lease is copied`
	return &job{*l} // want `a Lease is copied`
}

// From here on all is well.

type good struct {
	lease *quorumlock.Lease
	last  atomic.Pointer[quorumlock.Lease]
	all   []*quorumlock.Lease
}

func token(l *quorumlock.Lease) uint64 { return (*l).Token() }
