package otellock_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock"
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
	if err := l.Unlock(ctx); err != nil {
		t.Error(err)
	}
}

func all(t *testing.T, o quorumlock.Option, members ...quorumlock.Locker) quorumlock.Locker {
	t.Helper()
	l, err := multilock.New(members, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func spanOf(ctx context.Context) trace.SpanContext { return trace.SpanContextFromContext(ctx) }

// times are those of a span's events, in ns.
func times(s sdktrace.ReadOnlySpan) (at []int64) {
	for _, e := range s.Events() {
		at = append(at, e.Time.UnixNano())
	}
	return slices.Clip(at)
}

// nodes stands for node.Dial.
func nodes() []*node.Node {
	all := make([]*node.Node, 3)
	for i := range all {
		all[i], _ = embedded.Start(fmt.Sprint("node-", i+1)).Node()
	}
	return all
}
