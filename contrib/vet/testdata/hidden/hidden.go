package hidden

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/quorumlock/quorumlock"
)

func work(context.Context) error { return nil }

func write(uint64) error { return nil }

func unnoticed(ctx context.Context, m quorumlock.Locker) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock(ctx) // want `nothing notices the loss of lease`
	return work(ctx)
}

func blank(ctx context.Context, m quorumlock.Locker) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	log.Println(lease.Owner())
	_ = lease.Unlock(ctx) // want `nothing notices the loss of lease`
	return work(ctx)
}

func formatted(ctx context.Context, m quorumlock.Locker) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	if err := lease.Unlock(ctx); err != nil {
		return fmt.Errorf("unlock: %v", err) // want `formatted without %w`
	}
	return fmt.Errorf("again: %v", lease.Unlock(ctx)) // want `formatted without %w`
}

func replaced(ctx context.Context, m quorumlock.Locker) (err error) {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = lease.Unlock(ctx) }() // want `the error of Unlock replaces err: use errors.Join\(err, ...\)`
	return work(lease.Context())
}

func compared(ctx context.Context, l *quorumlock.Lease) bool {
	err := l.Unlock(ctx)
	return err == quorumlock.ErrLost || // want `ErrLost is compared with ==`
		context.Cause(ctx) != quorumlock.ErrLost // want `ErrLost is compared with !=`
}

// From here on all is well.

func byContext(ctx context.Context, m quorumlock.Locker) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock(ctx)
	return work(lease.Context())
}

func byToken(ctx context.Context, m quorumlock.Locker) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer lease.Unlock(ctx)
	return write(lease.Token())
}

func byError(ctx context.Context, m quorumlock.Locker) (err error) {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() {
		if e := lease.Unlock(ctx); errors.Is(e, quorumlock.ErrLost) {
			err = fmt.Errorf("two may have worked at once: %w", errors.Join(err, e))
		}
	}()
	return work(ctx)
}

func logged(ctx context.Context, m quorumlock.Locker) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	err = errors.Join(work(ctx), lease.Unlock(ctx))
	if err != nil {
		return fmt.Errorf("work: %w", err)
	}
	err = work(ctx)
	return fmt.Errorf("work: %v", err)
}

type lost struct{}

func (lost) Error() string { return "lost" }

func (lost) Is(target error) bool { return target == quorumlock.ErrLost }
