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
	since time.Time      // when it began
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector for a candidate. A new leader runs no job until settle after its election, so that it does
// not repeat what the previous leader has just run. So settle must be longer than the clocks of the processes differ by. A tick may
// be missed when the leader changes. NewElector returns an error if e is nil or settle is negative.
func NewElector(e *election.Election, settle time.Duration) (*Elector, error) {
	if e == nil {
		return nil, errors.New("quorumlock: gocronlock: NewElector: the election is nil: use election.New")
	}
	if settle < 0 {
		return nil, fmt.Errorf("quorumlock: gocronlock: NewElector: settle is %v: use 0 or more, such as the most that clocks differ by", settle)
	}
	return &Elector{election: e, settle: settle}, nil
}

// Run makes this process a candidate until ctx is done; then it resigns and returns ctx's error. A process that does not call
// Run never leads. Run returns other errors as [election.Election.Run] does. To let jobs end before another process leads, shut
// the scheduler down before you end ctx.
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

// IsLeader returns nil if this process leads and has settled, and an error otherwise: gocron runs no job then.
// The error is [election.ErrNotLeader] if the process does not lead. IsLeader asks no node: it compares the clock with the end of the leadership.
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
