package multilock_test

import (
	"context"
	"testing"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/multilock"
)

// all returns the lock of all members.
func all(t *testing.T, members ...quorumlock.Locker) *multilock.Mutex {
	t.Helper()
	m, err := multilock.New(members)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// free checks that every lock is free, and nothing else.
func free(t *testing.T, locks ...quorumlock.Locker) {
	t.Helper()
	for _, l := range locks {
		locktest.Unlock(t, locktest.TryLock(t, l))
	}
}

// foreign is a Locker of another make.
type foreign struct{ quorumlock.Locker }

func (foreign) Name() string { return "foreign" }

func (foreign) Lock(context.Context) (*quorumlock.Lease, error) { panic("not to be called") }
