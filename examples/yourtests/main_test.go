package main

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/examples/internal/try"
	"github.com/quorumlock/quorumlock/locktest"
	"github.com/quorumlock/quorumlock/locktest/nodetest"
)

func TestBilling(t *testing.T) {
	lock := locktest.New("billing")
	charge := func(context.Context) error { return nil }
	expect(t, "billed", bill(t.Context(), lock, charge))

	release := lock.Hold()
	expect(t, "somebody else bills", bill(t.Context(), lock, charge))
	release()

	lock.Fail(&quorumlock.QuorumError{Needed: 2})
	expect(t, "try again later", bill(t.Context(), lock, charge))
	lock.Fail(nil)

	expect(t, "stopped: true", bill(t.Context(), lock, func(ctx context.Context) error {
		lock.Lose()
		return ctx.Err()
	}))
}

// The same on five real nodes, of which too many die. No real time passes.
func TestBillingOnNodesThatDie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := nodetest.Start(t, 5)
		lock := nodes.Client().Mutex("billing")
		expect(t, "stopped: true", bill(t.Context(), lock, func(ctx context.Context) error {
			nodes.Kill(1, 2, 3)
			<-ctx.Done() // cancelled by the lease's deadline
			return ctx.Err()
		}))
		expect(t, "try again later", bill(t.Context(), lock, nil))
	})
}

func expect(t *testing.T, want, got string) {
	t.Helper()
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestMain(m *testing.M) { try.Main(m, main) }

func TestTheProgram(t *testing.T) {
	fleet := try.New(t)
	fleet.Wait(fleet.Start(""))
	expect(t, "billed", fleet.Line())
}
