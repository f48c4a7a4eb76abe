package unreleased

import (
	"context"
	"errors"
	"log"
	"os"

	"github.com/quorumlock/quorumlock"
)

var errStop = errors.New("stop")

func work(context.Context) error { return nil }

func forgotten(ctx context.Context, m quorumlock.Locker) error {
	lease, err := m.Lock(ctx) // want `lease is not unlocked on the path to line 21`
	if err != nil {
		return err
	}
	return work(lease.Context())
}

func early(ctx context.Context, m quorumlock.Locker) error {
	lease, err := m.Lock(ctx) // want `lease is not unlocked on the path to line 30`
	if err != nil {
		return err
	}
	if err := work(lease.Context()); err != nil {
		return err
	}
	return lease.Unlock(ctx)
}

func discarded(ctx context.Context, m quorumlock.Locker) error {
	m.Lock(ctx)               // want `the lease is discarded`
	_, err := m.TryLock(ctx)  // want `the lease is discarded`
	var _, err2 = m.Lock(ctx) // want `the lease is discarded`
	return errors.Join(err, err2)
}

func overwritten(ctx context.Context, m quorumlock.Locker) error {
	for range 3 {
		lease, err := m.Lock(ctx) // want `lease is not unlocked on the path to line 44`
		if err != nil {
			return err
		}
		log.Println(lease.Token())
	}
	return nil
}

func twice(ctx context.Context, a, b quorumlock.Locker) error {
	lease, err := a.Lock(ctx) // want `lease is not unlocked on the path to line 58`
	if err != nil {
		return err
	}
	lease, err = b.Lock(ctx)
	if err != nil {
		return err
	}
	return lease.Unlock(ctx)
}

// The error of something else does not tell whether there is a lease.
func otherError(ctx context.Context, m quorumlock.Locker) error {
	lease, err := m.Lock(ctx) // want `lease is not unlocked on the path to line 73`
	if err != nil {
		return err
	}
	err = work(lease.Context())
	if err != nil {
		return err
	}
	return lease.Unlock(ctx)
}

func inLiteral(m quorumlock.Locker) func(context.Context) {
	return func(ctx context.Context) {
		lease, err := m.TryLock(ctx) // want `lease is not unlocked on the path to line 84`
		if err == nil {
			log.Println(lease.String())
		}
	}
}

func onlyIfUnlucky(ctx context.Context, m quorumlock.Locker, bad bool) error {
	lease, err := m.Lock(ctx) // want `lease is not unlocked on the path to line 90`
	if err != nil || bad {
		return err
	}
	return lease.Unlock(ctx)
}

func blank(ctx context.Context, m quorumlock.Locker) error {
	lease, err := m.Lock(ctx) // want `lease is not unlocked on the path to line 98`
	_ = lease
	return err
}

// From here on all is well.

func deferred(ctx context.Context, m quorumlock.Locker) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock(ctx)
	return work(lease.Context())
}

func deferredLiteral(ctx context.Context, m quorumlock.Locker) (err error) {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lease.Unlock(ctx)) }()
	return work(lease.Context())
}

func returned(ctx context.Context, m quorumlock.Locker) (*quorumlock.Lease, error) {
	lease, err := m.Lock(ctx)
	return lease, err
}

func named(ctx context.Context, m quorumlock.Locker) (lease *quorumlock.Lease, err error) {
	lease, err = m.Lock(ctx)
	return
}

func passedOn(ctx context.Context, m quorumlock.Locker, to chan<- *quorumlock.Lease) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	to <- lease
	return nil
}

type job struct{ lease *quorumlock.Lease }

func stored(ctx context.Context, m quorumlock.Locker) (*job, error) {
	lease, err := m.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return &job{lease}, nil
}

func field(ctx context.Context, m quorumlock.Locker, j *job) (err error) {
	j.lease, err = m.Lock(ctx)
	return err
}

func kinds(ctx context.Context, m quorumlock.Locker) error {
	lease, err := m.TryLock(ctx)
	switch {
	case errors.Is(err, quorumlock.ErrHeld):
		return nil
	case err != nil:
		return err
	}
	return lease.Unlock(ctx)
}

func asType(ctx context.Context, m quorumlock.Locker) error {
	lease, err := m.TryLock(ctx)
	if held, ok := errors.AsType[*quorumlock.HeldError](err); ok {
		log.Println(held)
		return nil
	}
	if err != nil {
		return err
	}
	return lease.Unlock(ctx)
}

func fatal(ctx context.Context, m quorumlock.Locker) {
	lease, err := m.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if lease.Token() == 0 {
		os.Exit(1)
	}
	log.Println(lease.UnlockAfter(ctx, 0))
}

func detached(ctx context.Context, m quorumlock.Locker) (string, error) {
	lease, err := m.Lock(ctx)
	if err != nil {
		return "", err
	}
	text, err := lease.Detach(ctx, 60e9)
	return text, err
}

func retried(ctx context.Context, m quorumlock.Locker) error {
	var lease *quorumlock.Lease
	for {
		var err error
		if lease, err = m.TryLock(ctx); err == nil {
			break
		}
	}
	return lease.Unlock(ctx)
}

func wrapped(ctx context.Context, m quorumlock.Locker) error {
	lease, err := m.Lock(ctx)
	if !isFine(err) {
		return errStop
	}
	return lease.Unlock(ctx)
}

func translated(ctx context.Context, m quorumlock.Locker) error {
	lease, err := m.Lock(ctx)
	bad := !isFine(err)
	if bad {
		return errStop
	}
	return lease.Unlock(ctx)
}

func isFine(err error) bool { return err == nil }

func ifGot(ctx context.Context, m quorumlock.Locker) {
	lease, err := m.Lock(ctx)
	if lease != nil && err == nil {
		go func() { log.Println(lease.Unlock(ctx)) }()
	}
}

func elsewhere(ctx context.Context, m quorumlock.Locker) (func() error, error) {
	lease, err := m.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return func() error { return lease.Unlock(ctx) }, nil
}
