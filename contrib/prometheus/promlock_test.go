package promlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/quorumlock/quorumlock"
	otellock "github.com/quorumlock/quorumlock/contrib/otel"
	promlock "github.com/quorumlock/quorumlock/contrib/prometheus"
	"github.com/quorumlock/quorumlock/locktest/nodetest"
)

// both gives each event to two Observers.
type both struct{ a, b quorumlock.Observer }

func (o both) Begin(ctx context.Context, lock string) context.Context {
	return o.b.Begin(o.a.Begin(ctx, lock), lock)
}

func (o both) Observe(ctx context.Context, e quorumlock.Event) {
	o.a.Observe(ctx, e)
	o.b.Observe(ctx, e)
}

// series returns the values of a registry, by names and labels. Of a histogram it has all buckets.
func series(t *testing.T, r *client.Registry) map[string]string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				if l.GetValue() != "" { // an empty label is none
					labels = append(labels, l.GetName()+"="+l.GetValue())
				}
			}
			slices.Sort(labels)
			all[f.GetName()+fmt.Sprint(labels)] = fmt.Sprint(f.GetType(), " ", f.GetHelp(), " ", value(m))
		}
	}
	return all
}

func value(m *dto.Metric) string {
	h := m.GetHistogram()
	if h == nil {
		return fmt.Sprint(m.GetCounter().GetValue() + m.GetGauge().GetValue())
	}
	text := fmt.Sprintf("%d %.6f", h.GetSampleCount(), h.GetSampleSum())
	for _, b := range h.Bucket {
		if b.GetUpperBound() < 1e300 { // +Inf is the count
			text += fmt.Sprintf(" %v:%d", b.GetUpperBound(), b.GetCumulativeCount())
		}
	}
	return text
}

// Both Observers see the same grants, refusals, waits, losses and dead nodes, and must export the
// same series with the same values: the alerts and the dashboard work with either.
func TestTheMetricsAreThoseOfOpenTelemetry(t *testing.T) {
	for _, names := range []bool{false, true} {
		t.Run(fmt.Sprint("names of locks: ", names), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := client.NewRegistry(), client.NewRegistry()
				reader, err := exporter.New(exporter.WithRegisterer(theirs), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
				if err != nil {
					t.Fatal(err)
				}
				otelOptions := []otellock.Option{otellock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))}
				var options []promlock.Option
				if names {
					otelOptions, options = append(otelOptions, otellock.WithLockNames()), append(options, promlock.WithLockNames())
				}
				a, err := otellock.New(otelOptions...)
				if err != nil {
					t.Fatal(err)
				}
				b, err := promlock.New(ours, options...)
				if err != nil {
					t.Fatal(err)
				}
				begun := series(t, ours)
				if n := len(begun); n != 6 {
					t.Errorf("there are %d series before the first lock, want one for each reason of a loss: %v", n, begun)
				}
				happen(t, quorumlock.WithObserver(both{a, b}))
				got, want := series(t, ours), series(t, theirs)
				for name, v := range want {
					if got[name] != v {
						t.Errorf("%s is %q, want %q", name, got[name], v)
					}
				}
				for name := range got {
					if want[name] == "" {
						t.Errorf("%s is none of OpenTelemetry's", name)
					}
				}
				if len(want) < 20 {
					t.Errorf("only %d series: %v", len(want), want)
				}
			})
		})
	}
}

// happen makes an event of every kind that has a metric.
func happen(t *testing.T, option quorumlock.Option) {
	t.Helper()
	nodes := nodetest.Start(t, 3, option)
	x, ctx := nodes.Client().Mutex("x"), t.Context()
	lease := must(t)(x.Lock(ctx))
	inner := must(t)(x.Lock(lease.Context()))
	if _, err := nodes.NewClient(option).Mutex("x").TryLock(ctx); !errors.Is(err, quorumlock.ErrHeld) {
		t.Errorf("TryLock: %v", err)
	}
	go func() {
		time.Sleep(15 * time.Second)
		_, _ = inner.Unlock(ctx), lease.Unlock(ctx)
	}()
	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := nodes.NewClient(option).Mutex("x").Lock(limited); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Lock: %v", err)
	}
	next := must(t)(nodes.NewClient(option).Mutex("x").Lock(ctx)) // waits, and is handed over
	nodes.Kill(1, 2)
	<-next.Context().Done()
	if err := next.Unlock(ctx); !errors.Is(err, quorumlock.ErrLost) {
		t.Errorf("Unlock: %v", err)
	}
	if _, err := x.TryLock(ctx); !errors.Is(err, quorumlock.ErrNoQuorum) {
		t.Errorf("TryLock without a quorum: %v", err)
	}
	nodes.Restart(1, 2)
	must(t)(nodes.Client().Mutex("still held").Lock(ctx))
	synctest.Wait()
}

func must(t *testing.T) func(*quorumlock.Lease, error) *quorumlock.Lease {
	return func(l *quorumlock.Lease, err error) *quorumlock.Lease {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
}

func TestBadRegisterersAreRefused(t *testing.T) {
	if _, err := promlock.New(nil); err == nil || !strings.Contains(err.Error(), "the Registerer is nil") {
		t.Errorf("a nil Registerer: %v", err)
	}
	r := client.NewRegistry()
	if _, err := promlock.New(r, nil); err != nil {
		t.Fatal(err)
	}
	_, err := promlock.New(r)
	if err == nil || !strings.Contains(err.Error(), "give one Observer to all clients") || strings.Contains(err.Error(), "\n") {
		t.Errorf("a second Observer: %v", err)
	}
	if n := len(series(t, r)); n != 6 {
		t.Errorf("the first Observer has %d series after the failure of the second, want 6", n)
	}
	half := client.NewRegistry() // with one metric of that name
	half.MustRegister(client.NewCounterVec(client.CounterOpts{Name: "quorumlock_refused_total"}, []string{"other"}))
	if _, err := promlock.New(half); err == nil {
		t.Error("a Registry with another metric of that name is accepted")
	}
	if all, err := half.Gather(); err != nil || len(all) != 0 {
		t.Errorf("after a failure there are %v, %v", all, err)
	}
}
