package quorumlock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock"
)

// alwaysFree is a Locker for the tests of a program: it grants at once to every caller.
type alwaysFree struct{ grants uint64 }

func (f *alwaysFree) Name() string { return "fake" }

func (f *alwaysFree) Lock(ctx context.Context) (*quorumlock.Lease, error) {
	f.grants++
	lease, _ := quorumlock.NewLease(ctx, &grant{token: f.grants})
	return lease, nil
}

func (f *alwaysFree) TryLock(ctx context.Context) (*quorumlock.Lease, error) { return f.Lock(ctx) }

// grant is the Hold of one lease.
type grant struct{ token uint64 }

func (g *grant) Name() string                                                     { return "fake" }
func (g *grant) Owner() quorumlock.Owner                                          { return "test" }
func (g *grant) Token() uint64                                                    { return g.token }
func (g *grant) ValidUntil() time.Time                                            { return time.Now().Add(time.Hour) }
func (g *grant) HoldCount() int                                                   { return 1 }
func (g *grant) Extend(context.Context, time.Duration) error                      { return nil }
func (g *grant) EndLease(context.Context, *quorumlock.Lease, time.Duration) error { return nil }

func ExampleHold() {
	lock := new(alwaysFree)
	for range 2 {
		lease, err := lock.Lock(context.Background())
		exitOn(err)
		fmt.Println("token", lease.Token())
		exitOn(lease.Unlock(context.Background()))
	}
	// Output:
	// token 1
	// token 2
}
