package otellock_test

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/quorumlock/quorumlock"
	otellock "github.com/quorumlock/quorumlock/contrib/otel"
	"github.com/quorumlock/quorumlock/redlock"
)

// A program gives the Observer to its client, and the locks are in its traces and metrics. Here
// these stay in memory, and the nodes are embedded.
func Example() {
	spans := tracetest.NewSpanRecorder()
	observer, err := otellock.New(
		otellock.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))),
		otellock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))),
		otellock.WithLockNames(), // this program has few
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := redlock.New(nodes(), quorumlock.WithObserver(observer))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close() //nolint:errcheck // the example ends

	err = quorumlock.Do(context.Background(), client.Mutex("invoices"), func(context.Context) error { return nil })
	fmt.Println(err)
	for _, s := range spans.Ended() {
		fmt.Println(s.Name(), s.Attributes()[0].Value.AsString(), len(s.Links()))
	}
	// Output:
	// <nil>
	// quorumlock Lock invoices 0
	// quorumlock Unlock invoices 1
}

// Work elsewhere under the lease has a span of its own, with a link to the span that acquired the
// lease.
func ExampleLink() {
	observer, err := otellock.New()
	if err != nil {
		fmt.Println(err)
		return
	}
	client, err := redlock.New(nodes(), quorumlock.WithObserver(observer))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close() //nolint:errcheck // the example ends
	lease, err := client.Mutex("invoices").Lock(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("worker")
	_, span := tracer.Start(context.Background(), "send invoices", trace.WithLinks(otellock.Link(lease)))
	span.End()
	fmt.Println(spans.Ended()[0].Name(), lease.Unlock(context.Background()))
	// Output: send invoices <nil>
}
