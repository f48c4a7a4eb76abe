package otellock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	api "go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/quorumlock/quorumlock"
	otellock "github.com/quorumlock/quorumlock/contrib/otel"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/locktest/nodetest"
	"github.com/quorumlock/quorumlock/multilock"
)

// sdk has the spans and metrics that an Observer has made.
type sdk struct {
	t      *testing.T
	spans  *tracetest.SpanRecorder
	traces *sdktrace.TracerProvider
	reader *metric.ManualReader
	option quorumlock.Option

	observer *otellock.Observer
}

// observe starts three nodes whose client has an Observer.
func observe(t *testing.T, opts ...otellock.Option) (*sdk, *nodetest.Nodes) {
	t.Helper()
	s := &sdk{t: t, spans: tracetest.NewSpanRecorder(), reader: metric.NewManualReader()}
	s.traces = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.spans))
	o, err := otellock.New(append(opts, otellock.WithTracerProvider(s.traces), otellock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(s.reader))))...)
	testkit.Must(t, err, "New")
	s.observer, s.option = o, quorumlock.WithObserver(o)
	return s, nodetest.Start(t, 3, s.option)
}

// metrics are the metrics by their names.
func (s *sdk) metrics() map[string]metricdata.Metrics {
	s.t.Helper()
	synctest.Wait() // some events come from goroutines of their own
	var all metricdata.ResourceMetrics
	testkit.Must(s.t, s.reader.Collect(context.Background(), &all), "Collect")
	found := make(map[string]metricdata.Metrics)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			found[m.Name] = m
		}
	}
	return found
}

// has reports whether a set has all the attributes that are given as key=value.
func has(set attribute.Set, attrs []string) bool {
	return !slices.ContainsFunc(attrs, func(a string) bool {
		key, want, _ := strings.Cut(a, "=")
		got, ok := set.Value(attribute.Key(key))
		return !ok || got.String() != want
	})
}

// wantNumber fails the test if a counter or gauge with these attributes has another value.
func (s *sdk) wantNumber(want int64, name string, attrs ...string) {
	s.t.Helper()
	var points []metricdata.DataPoint[int64]
	switch d := s.metrics()[name].Data.(type) {
	case metricdata.Sum[int64]:
		points = d.DataPoints
	case metricdata.Gauge[int64]:
		points = d.DataPoints
	}
	var sum int64
	for _, p := range points {
		if has(p.Attributes, attrs) {
			sum += p.Value
		}
	}
	testkit.Equal(s.t, sum, want, "%s%q", name, attrs)
}

// durations are the points of a histogram with these attributes, as one.
func (s *sdk) durations(name string, attrs ...string) (count uint64, sum time.Duration) {
	s.t.Helper()
	m := s.metrics()[name]
	d, ok := m.Data.(metricdata.Histogram[float64])
	if ok && m.Unit != "s" {
		s.t.Errorf("%s is in %q, want s", name, m.Unit)
	}
	for _, p := range d.DataPoints {
		if has(p.Attributes, attrs) {
			count += p.Count
			sum += time.Duration(p.Sum * float64(time.Second))
		}
	}
	return count, sum
}

// wantDurations fails the test if a histogram has another count, or if its sum is not within 50 ms
// of sum.
func (s *sdk) wantDurations(count uint64, sum time.Duration, name string, attrs ...string) {
	s.t.Helper()
	if n, d := s.durations(name, attrs...); n != count || (d-sum).Abs() > 50*time.Millisecond {
		s.t.Errorf("%s%q has %d values, %v in all, want %d and %v", name, attrs, n, d, count, sum)
	}
}

// span is the only one of that name that is a child of parent.
func (s *sdk) span(name string, parent context.Context) sdktrace.ReadOnlySpan {
	s.t.Helper()
	var found []sdktrace.ReadOnlySpan
	for _, sp := range s.spans.Ended() {
		if sp.Name() == name && sp.Parent().SpanID() == spanOf(parent).SpanID() {
			found = append(found, sp)
		}
	}
	if len(found) != 1 {
		s.t.Fatalf("%d spans %q, want one", len(found), name)
	}
	return found[0]
}

// events are the names of a span's events, and their times in ns.
func events(s sdktrace.ReadOnlySpan) (names []string, at []int64) {
	for _, e := range s.Events() {
		names, at = append(names, e.Name), append(at, e.Time.UnixNano())
	}
	return names, at
}

func attr(s sdktrace.ReadOnlySpan, key string) string {
	for _, kv := range s.Attributes() {
		if string(kv.Key) == key {
			return kv.Value.String()
		}
	}
	return ""
}

// A lock with a wait and a handoff: the spans, and their durations.
func TestWaiterIsSeenFromItsCallToItsUnlock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s, nodes := observe(t)
		first := testkit.Lock(t, nodes.Client().Mutex("x"))
		s.wantNumber(1, "quorumlock.held")

		ctx, work := s.traces.Tracer("test").Start(t.Context(), "work")
		m := nodes.NewClient(s.option).Mutex("x")
		done := testkit.Go(func() *quorumlock.Lease { return testkit.LockIn(t, ctx, m) })
		time.Sleep(2 * time.Second)
		s.wantNumber(1, "quorumlock.acquiring")
		testkit.Unlock(t, first)
		second := <-done
		time.Sleep(time.Second)
		if got, want := spanOf(second.Context()), work.SpanContext(); !got.Equal(want) {
			t.Errorf("the work under the lock has the span %v, want that of the caller, %v", got, want)
		}
		unlockCtx, unlocking := s.traces.Tracer("test").Start(context.Background(), "elsewhere")
		testkit.OK(t, second.Unlock(unlockCtx), "Unlock")
		unlocking.End()
		work.End()

		l := s.span("quorumlock Lock", ctx)
		if got, at := events(l); !slices.IsSorted(at) || got[0] != "attempt" || !slices.Contains(got, "waiting") || got[len(got)-1] != "handed over" {
			t.Errorf("events %q at %v, want attempts, waiting, and handed over as the last", got, at)
		}
		testkit.Equal(t, l.EndTime().Sub(l.StartTime()).Truncate(100*time.Millisecond), 2*time.Second, "duration of the span of Lock")
		if attr(l, "quorumlock.handed_over") != "true" || attr(l, "quorumlock.token") != fmt.Sprint(second.Token()) || attr(l, "quorumlock.operation") != "lock" {
			t.Errorf("attributes %v", l.Attributes())
		}
		u := s.span("quorumlock Unlock", unlockCtx)
		if len(u.Links()) != 1 || !u.Links()[0].SpanContext.Equal(l.SpanContext()) || !otellock.Link(second).SpanContext.Equal(l.SpanContext()) {
			t.Errorf("links of Unlock %v, Link(lease) %v, want the span of Lock, %v", u.Links(), otellock.Link(second), l.SpanContext())
		}
		s.wantDurations(2, 2*time.Second, "quorumlock.acquire.duration", "quorumlock.operation=lock")
		s.wantDurations(1, 2*time.Second, "quorumlock.wait.duration")
		s.wantDurations(2, 3*time.Second, "quorumlock.hold.duration")
		s.wantNumber(0, "quorumlock.held")
		s.wantNumber(0, "quorumlock.acquiring")
	})
}

// Callers of one process wait for each other without a request: that is waiting, too.
func TestWaitingInTheProcessCounts(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s, nodes := observe(t)
		ctx, work := s.traces.Tracer("test").Start(t.Context(), "work")
		defer work.End()
		m := nodes.Client().Mutex("x")
		lease := testkit.Lock(t, m)
		limited, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		for range 4 {
			go func() { _, _ = m.Lock(t.Context()) }()
			synctest.Wait()
		}
		testkit.Is(t, testkit.Err(m.Lock(limited)), context.DeadlineExceeded, "Lock")
		if got, _ := events(s.span("quorumlock Lock", ctx)); !slices.Equal(got, []string{"waiting in the process"}) {
			t.Errorf("events %q", got)
		}
		s.wantDurations(1, time.Second, "quorumlock.wait.duration")
		s.wantNumber(1, "quorumlock.refused", "error.type=timeout", "quorumlock.operation=lock")
		testkit.Unlock(t, lease)
		_ = nodes.Client().Close()
	})
}

func TestLossIsCountedByReason(t *testing.T) {
	for reason, tt := range map[quorumlock.LossReason]struct {
		opts []quorumlock.Option
		harm func(n *nodetest.Nodes)
		late int64
	}{
		quorumlock.LossNotRenewed:  {nil, func(n *nodetest.Nodes) { n.Freeze(1, 2) }, 1},
		quorumlock.LossNotExtended: {[]quorumlock.Option{quorumlock.WithoutRenewal()}, func(*nodetest.Nodes) {}, 0},
		quorumlock.LossKeysGone:    {nil, func(n *nodetest.Nodes) { n.Forget() }, 0},
		quorumlock.LossMaxHold:     {[]quorumlock.Option{quorumlock.WithMaxHold(5 * time.Second)}, func(*nodetest.Nodes) {}, 0},
		quorumlock.LossClosed:      {nil, func(n *nodetest.Nodes) { _ = n.Client().Close() }, 0},
	} {
		testkit.Run(t, string(reason), func(t *testing.T) {
			s, nodes := observe(t)
			ctx, work := s.traces.Tracer("test").Start(t.Context(), "work")
			lease := testkit.LockIn(t, ctx, nodes.Client().Mutex("x", tt.opts...))
			tt.harm(nodes)
			<-lease.Context().Done()
			held, _ := s.durations("quorumlock.hold.duration")
			testkit.Equal(t, held, 1, "ended holds")
			s.wantNumber(1, "quorumlock.lost", "quorumlock.lost.reason="+string(reason))
			s.wantNumber(1, "quorumlock.lost")
			s.wantNumber(0, "quorumlock.held")
			s.wantNumber(tt.late, "quorumlock.renewal.late")
			nodes.Thaw()
			testkit.Is(t, lease.Unlock(ctx), quorumlock.ErrLost, "Unlock")
			work.End()
			s.wantNumber(0, "quorumlock.held")
			held, _ = s.durations("quorumlock.hold.duration")
			testkit.Equal(t, held, 1, "ended holds after the Unlock")
			if got, _ := events(work.(sdktrace.ReadOnlySpan)); !slices.Contains(got, "quorumlock: lease lost") || slices.Contains(got, "quorumlock: renewal late") != (tt.late > 0) {
				t.Errorf("events of the work: %q", got)
			}
			if reason == quorumlock.LossClosed { // Unlock of a closed client sends no request
				return
			}
			if u := s.span("quorumlock Unlock", ctx); attr(u, "error.type") != "lost" || u.Status().Code != codes.Error {
				t.Errorf("Unlock of a lost lease: %v, %v", u.Attributes(), u.Status())
			}
		})
	}
}

func TestRefusalsAreCountedByType(t *testing.T) {
	for kind, tt := range map[string]struct {
		status codes.Code
		call   func(t *testing.T, n *nodetest.Nodes, m quorumlock.Locker) error
	}{
		"held": {codes.Unset, func(t *testing.T, n *nodetest.Nodes, m quorumlock.Locker) error {
			testkit.Lock(t, n.NewClient().Mutex("x"))
			return testkit.Err(m.TryLock(t.Context()))
		}},
		"no_quorum": {codes.Error, func(t *testing.T, n *nodetest.Nodes, m quorumlock.Locker) error {
			n.Kill(1, 2)
			return testkit.Err(m.TryLock(t.Context()))
		}},
		"timeout": {codes.Error, func(t *testing.T, n *nodetest.Nodes, m quorumlock.Locker) error {
			testkit.Lock(t, n.NewClient().Mutex("x"))
			return testkit.Err(m.Lock(testkit.Within(t, time.Second)))
		}},
		"unsent": {codes.Error, func(t *testing.T, n *nodetest.Nodes, m quorumlock.Locker) error {
			testkit.Unlock(t, testkit.Lock(t, n.Client().Mutex("warm", quorumlock.WithObserver(nil))))
			n.Freeze()
			for i := range 64 {
				go func() { _, _ = n.Client().Mutex(fmt.Sprint(i), quorumlock.WithObserver(nil)).Lock(t.Context()) }()
			}
			synctest.Wait()
			return testkit.Err(m.TryLock(testkit.Within(t, 10*time.Millisecond)))
		}},
		"cancelled": {codes.Error, func(t *testing.T, n *nodetest.Nodes, m quorumlock.Locker) error {
			testkit.Lock(t, n.NewClient().Mutex("x"))
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			return testkit.Err(m.Lock(ctx))
		}},
		"closed": {codes.Error, func(t *testing.T, n *nodetest.Nodes, m quorumlock.Locker) error {
			testkit.Lock(t, n.NewClient().Mutex("x"))
			time.AfterFunc(time.Second, func() { _ = n.Client().Close() })
			return testkit.Err(m.Lock(t.Context()))
		}},
		"wrong_kind": {codes.Error, func(t *testing.T, n *nodetest.Nodes, m quorumlock.Locker) error {
			testkit.Lock(t, n.NewClient().Semaphore("x", 2))
			return testkit.Err(m.TryLock(t.Context()))
		}},
		"mismatch": {codes.Error, func(t *testing.T, n *nodetest.Nodes, _ quorumlock.Locker) error {
			testkit.Lock(t, n.NewClient().Semaphore("x", 2))
			return testkit.Err(n.Client().Semaphore("x", 3).TryLock(t.Context()))
		}},
		"misuse": {codes.Error, func(t *testing.T, n *nodetest.Nodes, m quorumlock.Locker) error {
			reader := testkit.Lock(t, n.Client().RWMutex("x", quorumlock.WithObserver(nil)).RLocker())
			return testkit.Err(m.TryLock(reader.Context()))
		}},
	} {
		testkit.Run(t, kind, func(t *testing.T) {
			s, nodes := observe(t)
			if err := tt.call(t, nodes, nodes.Client().Mutex("x")); err == nil {
				t.Fatal("no error")
			}
			s.wantNumber(1, "quorumlock.refused", "error.type="+kind)
			s.wantNumber(1, "quorumlock.refused")
			n, _ := s.durations("quorumlock.acquire.duration", "error.type="+kind)
			testkit.Equal(t, n, 1, "values of acquire.duration with that error")
			s.wantNumber(0, "quorumlock.held")
			s.wantNumber(0, "quorumlock.acquiring")
			if l := s.spans.Ended()[0]; attr(l, "error.type") != kind || l.Status().Code != tt.status {
				t.Errorf("the span has %v and status %v", l.Attributes(), l.Status())
			}
		})
	}
}

// A renewal is due every third of the TTL, and confirmed a round trip later.
func TestRenewalsAndNodesAreMeasured(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s, nodes := observe(t)
		lease := testkit.Lock(t, nodes.Client().Mutex("x"))
		time.Sleep(4 * time.Second) // a renewal at 3.3 s makes a connection
		nodes.Delay(100 * time.Millisecond)
		time.Sleep(7 * time.Second) // renewals at 6.7 and 10 s
		s.wantDurations(3, 420*time.Millisecond, "quorumlock.renewal.lag")
		for _, n := range []string{"node-1", "node-2", "node-3"} {
			s.wantNumber(1, "quorumlock.node.up", "quorumlock.node="+n)
			s.wantDurations(4, 400*time.Millisecond, "quorumlock.node.round_trip.duration", "quorumlock.node="+n)
		}
		nodes.Delay(0)
		nodes.Kill(3)
		time.Sleep(4 * time.Second)
		s.wantNumber(0, "quorumlock.node.up", "quorumlock.node=node-3")
		s.wantNumber(2, "quorumlock.node.up")
		nodes.Restart(3)
		time.Sleep(4 * time.Second)
		s.wantNumber(3, "quorumlock.node.up")
		testkit.Unlock(t, lease)
	})
}

// The nodes have yet to answer 16 attempts, so two others wait unsent.
func TestTheAdmissionIsMeasured(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s, nodes := observe(t)
		testkit.Unlock(t, testkit.Lock(t, nodes.Client().Mutex("x")))
		nodes.Freeze()
		for i := range 16 + 2 {
			go func() {
				if lease, err := nodes.Client().Mutex(fmt.Sprint(i)).Lock(t.Context()); err == nil {
					defer lease.Unlock(t.Context()) //nolint:errcheck // the test ends
					time.Sleep(time.Second)
				}
			}()
			synctest.Wait()
		}
		s.wantNumber(0, "quorumlock.unsent")
		nodes.Thaw(1)
		synctest.Wait()
		s.wantNumber(2, "quorumlock.unsent")
		s.wantNumber(0, "quorumlock.node.in_flight", "quorumlock.node=node-1")
		s.wantNumber(16, "quorumlock.node.in_flight_limit", "quorumlock.node=node-2")
		nodes.Thaw()
		synctest.Wait()
		s.wantNumber(0, "quorumlock.unsent")
		s.wantNumber(0, "quorumlock.node.in_flight")
	})
}

// The leases of one hold count once.
func TestReentryIsNoSecondHold(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s, nodes := observe(t)
		m := nodes.Client().Mutex("x")
		outer := testkit.Lock(t, m)
		time.Sleep(time.Second)
		inner := testkit.LockIn(t, outer.Context(), m)
		s.wantNumber(1, "quorumlock.held")
		testkit.Unlock(t, outer)
		s.wantNumber(1, "quorumlock.held")
		time.Sleep(time.Second)
		testkit.Unlock(t, inner)
		s.wantNumber(0, "quorumlock.held")
		s.wantDurations(1, 2*time.Second, "quorumlock.hold.duration")
	})
}

func TestNamesOfLocksAreThereOnlyIfAskedFor(t *testing.T) {
	const locks = 100
	for _, named := range []bool{false, true} {
		testkit.Run(t, fmt.Sprint(named), func(t *testing.T) {
			s, nodes := observe(t, map[bool][]otellock.Option{true: {otellock.WithLockNames()}}[named]...)
			other := nodes.NewClient()
			for i := range locks {
				m := nodes.Client().Mutex(fmt.Sprint("private-", i))
				lease := testkit.Lock(t, m)
				testkit.Refused(t, other.Mutex(m.Name(), s.option))
				time.Sleep(4 * time.Second)
				testkit.Unlock(t, lease)
			}
			var dump strings.Builder
			for _, sp := range s.spans.Ended() {
				fmt.Fprintln(&dump, sp.Name(), sp.Attributes(), sp.Status(), sp.Events(), sp.Links())
			}
			for name, m := range s.metrics() {
				fmt.Fprintln(&dump, m)
				want := map[bool]int{false: 6, true: locks * 6}[named]
				if n := series(m); n > want || named && n < locks && name != "quorumlock.lost" && name != "quorumlock.unsent" && !strings.HasPrefix(name, "quorumlock.node.") {
					t.Errorf("%s has %d series", name, n)
				}
			}
			testkit.Equal(t, strings.Contains(dump.String(), "private-"), named, "names of locks are there")
		})
	}
}

func series(m metricdata.Metrics) int {
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		return len(d.DataPoints)
	case metricdata.Gauge[int64]:
		return len(d.DataPoints)
	case metricdata.Histogram[float64]:
		return len(d.DataPoints)
	}
	return 0
}

func TestMeasurementsHaveTheirSpanAsExemplar(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s, nodes := observe(t)
		m := nodes.Client().Mutex("x")
		testkit.Unlock(t, testkit.Lock(t, m))
		d := s.metrics()["quorumlock.acquire.duration"].Data.(metricdata.Histogram[float64])
		span := s.spans.Ended()[0].SpanContext().SpanID()
		if e := d.DataPoints[0].Exemplars; len(e) != 1 || string(e[0].SpanID) != string(span[:]) {
			t.Errorf("exemplars %v, want one of the span %v", e, span)
		}
	})
}

// All kinds of locks have events, each as one lock.
func TestEveryKindOfLockIsSeen(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s, nodes := observe(t)
		c := nodes.Client()
		both, err := multilock.New([]quorumlock.Locker{c.Mutex("e"), c.Mutex("f")}, s.option)
		testkit.Must(t, err, "New")
		locks := []quorumlock.Locker{c.RWMutex("a"), c.RWMutex("b").RLocker(), c.Semaphore("c", 2), nodes.Node().Mutex("d", s.option), both}
		var leases []*quorumlock.Lease
		for _, l := range locks {
			leases = append(leases, testkit.Lock(t, l))
		}
		s.wantNumber(int64(len(locks)), "quorumlock.held")
		testkit.UnlockAll(t, leases...)
		s.wantNumber(0, "quorumlock.held")
	})
}

func TestBadProvidersAreRefused(t *testing.T) {
	if _, err := otellock.New(otellock.WithTracerProvider(nil)); err == nil {
		t.Error("a nil provider is accepted")
	}
	testkit.Equal(t, otellock.Link(nil).SpanContext.IsValid(), false, "Link(nil) is valid")
	testkit.OK(t, testkit.Err(otellock.New()), "New with the global providers, which do nothing")
	_, err := otellock.New(otellock.WithMeterProvider(failing{}))
	testkit.Equal(t, fmt.Sprint(err), "quorumlock: otellock.New: no counter quorumlock.lost", "the error is one line")
}

// failing is a MeterProvider that fails to make counters.
type failing struct{ noop.MeterProvider }

type failingMeter struct{ noop.Meter }

func (failing) Meter(string, ...api.MeterOption) api.Meter { return failingMeter{} }

func (failingMeter) Int64Counter(name string, _ ...api.Int64CounterOption) (api.Int64Counter, error) {
	return noop.Int64Counter{}, fmt.Errorf("no counter %s", name)
}

// Another program has overwritten the keys of a lock that is held.
func TestALossIsCalledSoWhateverTheNodesSay(t *testing.T) {
	for _, why := range []error{quorumlock.ErrNotALock, quorumlock.ErrClosed, context.Canceled} {
		s, _ := observe(t)
		lost := &quorumlock.LostError{Name: "x", Nodes: []*quorumlock.NodeError{{Node: "n", Err: why}}}
		s.observer.Observe(t.Context(), quorumlock.Event{Kind: quorumlock.EventReleased, Lock: "x", Err: lost})
		testkit.Equal(t, attr(s.spans.Ended()[0], "error.type"), "lost", "the type with %v at a node", why)
	}
}

// Each round trip to a node is an event.
func BenchmarkNodeAsked(b *testing.B) {
	o, err := otellock.New(otellock.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(metric.NewManualReader()))))
	if err != nil {
		b.Fatal(err)
	}
	e := quorumlock.Event{Kind: quorumlock.EventNodeAsked, Node: "10.0.0.1:6379", Took: time.Millisecond}
	b.ReportAllocs()
	for b.Loop() {
		o.Observe(b.Context(), e)
	}
}
