package otellock_test

import (
	"context"
	"fmt"
	"testing"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/node"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func spanOf(ctx context.Context) trace.SpanContext { return trace.SpanContextFromContext(ctx) }

// nodes stands for node.Dial.
func nodes() []*node.Node {
	all := make([]*node.Node, 3)
	for i := range all {
		all[i], _ = embedded.Start(fmt.Sprint("node-", i+1)).Node()
	}
	return all
}
