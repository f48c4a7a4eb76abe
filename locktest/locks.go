package locktest

import (
	"slices"
	"sync"

	"github.com/quorumlock/quorumlock"
)

// Locks has locks in memory by name, for code that takes a function such as redlock's
// client.Lockers("jobs:"):
//
//	locks := locktest.NewLocks()
//	release := locks.Get("report").Hold()
//	runJobs(ctx, locks.Locker)
//
// It is safe for concurrent use; its zero value makes locks with the default options.
type Locks struct {
	opts []quorumlock.Option

	mu    sync.Mutex
	locks map[string]*Locker
}

// NewLocks returns Locks that makes each lock with opts, see [New].
func NewLocks(opts ...quorumlock.Option) *Locks { return &Locks{opts: slices.Clone(opts)} }

// Get returns the lock of a name: always the same one for one name.
func (l *Locks) Get(name string) *Locker {
	l.mu.Lock()
	defer l.mu.Unlock()
	lock := l.locks[name]
	if lock == nil {
		if l.locks == nil {
			l.locks = make(map[string]*Locker)
		}
		lock = New(name, l.opts...)
		l.locks[name] = lock
	}
	return lock
}

// Locker is [Locks.Get] as a [quorumlock.Locker]: the function to pass to the code under test.
func (l *Locks) Locker(name string) quorumlock.Locker { return l.Get(name) }
