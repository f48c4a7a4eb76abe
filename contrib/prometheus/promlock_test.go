package promlock_test

import (
	"context"
	"fmt"
	"maps"
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
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/locktest/nodetest"
	"github.com/quorumlock/quorumlock/redlock"
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
	testkit.Must(t, err, "Gather")
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
		testkit.Run(t, fmt.Sprint("names of locks: ", names), func(t *testing.T) {
			ours, theirs := client.NewRegistry(), client.NewRegistry()
			reader, err := exporter.New(exporter.WithRegisterer(theirs), exporter.WithoutScopeInfo(), exporter.WithoutTargetInfo())
			testkit.Must(t, err, "New")
			otelOptions := []otellock.Option{otellock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))}
			var options []promlock.Option
			if names {
				otelOptions, options = append(otelOptions, otellock.WithLockNames()), append(options, promlock.WithLockNames())
			}
			a, err := otellock.New(otelOptions...)
			testkit.Must(t, err, "New")
			b, err := promlock.New(ours, options...)
			testkit.Must(t, err, "New")
			testkit.Equal(t, len(series(t, ours)), 6, "series before the first lock, one for each reason of a loss")
			happen(t, quorumlock.WithObserver(both{a, b}))
			got, want := series(t, ours), series(t, theirs)
			all := maps.Clone(got)
			maps.Copy(all, want)
			for name := range all {
				testkit.Equal(t, got[name], want[name], "%s", name)
			}
			testkit.Equal(t, got["quorumlock_unsent[]"], "GAUGE Attempts that wait in the process for room at the nodes. 2", "attempts that wait unsent")
			if len(want) < 20 {
				t.Errorf("only %d series: %v", len(want), want)
			}
		})
	}
}

// happen makes an event of every kind that has a metric.
func happen(t *testing.T, option quorumlock.Option) {
	t.Helper()
	nodes := nodetest.Start(t, 3, option)
	x, ctx := nodes.Client().Mutex("x"), t.Context()
	lease := testkit.Lock(t, x)
	inner := testkit.LockIn(t, lease.Context(), x)
	testkit.Is(t, testkit.Err(nodes.NewClient(option).Mutex("x").TryLock(ctx)), quorumlock.ErrHeld, "TryLock")
	go func() {
		time.Sleep(15 * time.Second)
		_, _ = inner.Unlock(ctx), lease.Unlock(ctx)
	}()
	limited := testkit.Within(t, time.Second)
	testkit.Is(t, testkit.Err(nodes.NewClient(option).Mutex("x").Lock(limited)), context.DeadlineExceeded, "Lock")
	next := testkit.Lock(t, nodes.NewClient(option).Mutex("x")) // waits, and is handed over
	nodes.Kill(1, 2)
	<-next.Context().Done()
	testkit.Is(t, next.Unlock(ctx), quorumlock.ErrLost, "Unlock")
	testkit.Is(t, testkit.Err(x.TryLock(ctx)), quorumlock.ErrNoQuorum, "TryLock without a quorum")
	nodes.Restart(1, 2)
	testkit.Lock(t, nodes.Client().Mutex("still held"))
	nodes.Freeze()
	for i := range 16 + 2 { // two of them wait unsent
		go func() { _, _ = nodes.Client().Mutex(fmt.Sprint("burst-", i)).Lock(ctx) }()
	}
	synctest.Wait()
	nodes.Thaw(1)
	synctest.Wait()
}

// connect replaces redlock.Dial(urls): three servers in the process.
func connect(opts ...quorumlock.Option) (client *redlock.Client, stop func()) {
	client, _, stop = testkit.Connect(3, opts...)
	return client, stop
}

func TestBadRegisterersAreRefused(t *testing.T) {
	if _, err := promlock.New(nil); err == nil || !strings.Contains(err.Error(), "the Registerer is nil") {
		t.Errorf("a nil Registerer: %v", err)
	}
	r := client.NewRegistry()
	testkit.Must(t, testkit.Err(promlock.New(r, nil)), "New")
	_, err := promlock.New(r)
	if err == nil || !strings.Contains(err.Error(), "give one Observer to all clients") || strings.Contains(err.Error(), "\n") {
		t.Errorf("a second Observer: %v", err)
	}
	testkit.Equal(t, len(series(t, r)), 6, "series of the first Observer after the failure of the second")
	half := client.NewRegistry() // with one metric of that name
	half.MustRegister(client.NewCounterVec(client.CounterOpts{Name: "quorumlock_refused_total"}, []string{"other"}))
	if _, err := promlock.New(half); err == nil {
		t.Error("a Registry with another metric of that name is accepted")
	}
	if all, err := half.Gather(); err != nil || len(all) != 0 {
		t.Errorf("after a failure there are %v, %v", all, err)
	}
}
