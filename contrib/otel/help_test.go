package otellock_test

import (
	"context"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/node"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// must fails the test if a lock was not acquired.
func must(t *testing.T) func(*quorumlock.Lease, error) *quorumlock.Lease {
	return func(l *quorumlock.Lease, err error) *quorumlock.Lease {
		t.Helper()
		if err != nil {
			t.Error(err)
			panic(err)
		}
		return l
	}
}

func unlock(t *testing.T, l *quorumlock.Lease, ctx context.Context) { //nolint:revive // the lease is what it is about
	t.Helper()
	locktest.OK(t, l.Unlock(ctx), "Unlock")
}

func all(t *testing.T, o quorumlock.Option, members ...quorumlock.Locker) quorumlock.Locker {
	t.Helper()
	l, err := multilock.New(members, o)
	locktest.Must(t, err, "New")
	return l
}

func spanOf(ctx context.Context) trace.SpanContext { return trace.SpanContextFromContext(ctx) }

// nodes stands for node.Dial.
func nodes() []*node.Node {
	all := make([]*node.Node, 3)
	for i := range all {
		all[i], _ = embedded.Start(fmt.Sprint("node-", i+1)).Node()
	}
	return all
}
