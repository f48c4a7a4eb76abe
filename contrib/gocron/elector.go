package gocronlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/quorumlock/quorumlock/election"
)

// Elector is a [gocron.Elector]. It is safe for concurrent use; its zero value is not usable.
type Elector struct {
	election *election.Election
	settle   time.Duration

	mu    sync.Mutex
	term  *election.Term // the latest; nil if there was none
	since time.Time      // the beginning of term
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector for a candidate. A new leader runs no job until settle after its
// election, so that it does not repeat the last runs of the previous leader. So settle must be
// longer than the difference between the processes' clocks. A change of the leader may skip a tick.
// NewElector returns an error if e is nil or settle is negative.
func NewElector(e *election.Election, settle time.Duration) (*Elector, error) {
	if e == nil {
		return nil, errors.New("quorumlock: gocronlock: NewElector: the election is nil: use election.New")
	}
	if settle < 0 {
		return nil, fmt.Errorf("quorumlock: gocronlock: NewElector: settle is %v: use 0 or more, such as the most that clocks differ by", settle)
	}
	return &Elector{election: e, settle: settle}, nil
}

// Run makes this process a candidate until ctx is done; then it resigns and returns ctx's error. A
// process that does not call Run never leads. Run returns other errors as [election.Election.Run]
// does. To let jobs end before another process leads, shut the scheduler down before you cancel
// ctx.
func (x *Elector) Run(ctx context.Context) error {
	return x.election.Run(ctx, func(ctx context.Context) error {
		term, _ := election.TermOf(ctx)
		x.mu.Lock()
		x.term, x.since = term, time.Now()
		x.mu.Unlock()
		<-ctx.Done()
		return nil
	})
}

// IsLeader returns nil if this process leads and has settled. Otherwise it returns an error, and
// gocron runs no job. The error is [election.ErrNotLeader] if the process does not lead. IsLeader
// sends no request: it compares the clock with the end of the leadership.
func (x *Elector) IsLeader(context.Context) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.term == nil || x.term.Err() != nil {
		return election.ErrNotLeader
	}
	if led := time.Since(x.since); led < x.settle {
		return fmt.Errorf("quorumlock: gocronlock: this process has led for %v, and runs jobs only after %v", led, x.settle)
	}
	return nil
}
