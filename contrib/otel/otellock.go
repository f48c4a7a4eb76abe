// Package otellock makes traces and metrics of locks with OpenTelemetry.
//
//	observer, err := otellock.New()
//	...
//	client, err := redlock.New(nodes, quorumlock.WithObserver(observer))
//
// # Traces
//
// Each call of Lock, TryLock and Unlock is a span, a child of the span in the call's ctx. A span of
// Lock has an event for each attempt and each wait, and one for a handoff by the previous holder. A
// span of Unlock links to the span that acquired the lease; see [Link] for other spans. The span in
// the ctx of Lock is usually that of the work under the lock. It gets an event when a renewal is
// late and when the lease is lost.
//
// # Metrics
//
//	quorumlock.acquire.duration           histogram, s    a call of Lock or TryLock
//	quorumlock.wait.duration              histogram, s    waiting time of calls that had to wait
//	quorumlock.hold.duration              histogram, s    from the grant to the release or loss
//	quorumlock.acquiring                  up-down counter calls of Lock and TryLock in progress
//	quorumlock.held                       up-down counter locks that are held now
//	quorumlock.lost                       counter         lost holds, by quorumlock.lost.reason
//	quorumlock.refused                    counter         failed calls, by error.type
//	quorumlock.renewal.lag                histogram, s    from the due time to the confirmation
//	quorumlock.renewal.late               counter         first failures of a hold's renewals
//	quorumlock.node.up                    gauge           1 if the node answered last time, or 0
//	quorumlock.node.round_trip.duration   histogram, s    a round trip, with its local queueing
//	quorumlock.node.in_flight             gauge           attempts that were sent, unanswered
//	quorumlock.node.in_flight_limit       gauge           attempts that may be in flight
//	quorumlock.unsent                     gauge           attempts that wait for room at the nodes
//
// The waiting time is the part of a call in which another holder, or the lack of a quorum or of
// room at the nodes, delayed it. Failed calls are calls of Lock and TryLock. The last three have
// the values of the last round trip. If clients share an Observer, they are those of the client
// that made it.
//
// The attributes have few values. quorumlock.operation is lock or try_lock. error.type is held,
// no_quorum, timeout, unsent, cancelled, closed, not_a_lock, wrong_kind, mismatch, misuse, lost
// (only for Unlock) or _OTHER. quorumlock.lost.reason is a [quorumlock.LossReason]. quorumlock.node is the
// node's address, or the name from node.WithName. So the number of series is bounded. The names of
// locks are in traces and metrics only with [WithLockNames]. Measurements have the span as an
// exemplar, if the SDK has exemplars on.
package otellock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/quorumlock/quorumlock"
)

const scope = "github.com/quorumlock/quorumlock/contrib/otel"

// The keys of the attributes.
const (
	keyLock      = attribute.Key("quorumlock.lock.name")
	keyOperation = attribute.Key("quorumlock.operation")
	keyReason    = attribute.Key("quorumlock.lost.reason")
	keyNode      = attribute.Key("quorumlock.node")
	keyToken     = attribute.Key("quorumlock.token")
	keyAttempts  = attribute.Key("quorumlock.attempts")
	keyHanded    = attribute.Key("quorumlock.handed_over")
	keyError     = attribute.Key("error.type")
)

// An Option configures an [Observer].
type Option func(*Observer)

// WithTracerProvider sets the provider for the spans. The default is the global one.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(o *Observer) { o.traces = p }
}

// WithMeterProvider sets the provider for the metrics. The default is the global one.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(o *Observer) { o.meters = p }
}

// WithLockNames adds the names of locks to spans and metrics, as quorumlock.lock.name. Each name
// adds its own series. Use this option only in programs with few names, and without private data in
// the names.
func WithLockNames() Option { return func(o *Observer) { o.names = true } }

// Observer is a [quorumlock.Observer]. It is safe for concurrent use, and may serve several
// clients; its zero value is not usable.
type Observer struct {
	traces trace.TracerProvider
	meters metric.MeterProvider
	names  bool

	tracer              trace.Tracer
	acquire, wait, hold metric.Float64Histogram
	lag, trip           metric.Float64Histogram
	acquiring, held     metric.Int64UpDownCounter
	lost, refused, late metric.Int64Counter
	up, unsent          metric.Int64Gauge
	flight, limit       metric.Int64Gauge

	plain metric.MeasurementOption // no attributes
	nodes sync.Map                 // the []metric.RecordOption of each node, by its name
}

var _ quorumlock.Observer = (*Observer)(nil)

var reasons = []quorumlock.LossReason{
	quorumlock.LossNotRenewed, quorumlock.LossNotExtended, quorumlock.LossKeysGone, quorumlock.LossMaxHold, quorumlock.LossClosed,
	quorumlock.LossResigned,
}

// bounds, in seconds, cover a lock in one data centre up to a wait of minutes.
var bounds = metric.WithExplicitBucketBoundaries(.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300)

// New returns an Observer for quorumlock.WithObserver. It returns an error if a provider is nil, or
// else the first error of the meter provider.
func New(opts ...Option) (*Observer, error) {
	o := &Observer{traces: otel.GetTracerProvider(), meters: otel.GetMeterProvider()}
	for _, set := range opts {
		if set != nil {
			set(o)
		}
	}
	if o.traces == nil || o.meters == nil {
		return nil, errors.New("quorumlock: otellock.New: a provider is nil: leave out the option to use the global one")
	}
	o.tracer = o.traces.Tracer(scope)
	o.plain = metric.WithAttributeSet(*attribute.EmptySet())
	m := o.meters.Meter(scope)
	var errs []error
	histogram := func(name, what string) metric.Float64Histogram {
		h, err := m.Float64Histogram("quorumlock."+name, metric.WithUnit("s"), metric.WithDescription(what), bounds)
		errs = append(errs, err)
		return h
	}
	counter := func(name, unit, what string) metric.Int64Counter {
		c, err := m.Int64Counter("quorumlock."+name, metric.WithUnit(unit), metric.WithDescription(what))
		errs = append(errs, err)
		return c
	}
	current := func(name, unit, what string) metric.Int64UpDownCounter {
		c, err := m.Int64UpDownCounter("quorumlock."+name, metric.WithUnit(unit), metric.WithDescription(what))
		errs = append(errs, err)
		return c
	}
	gauge := func(name, unit, what string) metric.Int64Gauge {
		g, err := m.Int64Gauge("quorumlock."+name, metric.WithUnit(unit), metric.WithDescription(what))
		errs = append(errs, err)
		return g
	}
	o.acquire = histogram("acquire.duration", "How long calls of Lock and TryLock took.")
	o.wait = histogram("wait.duration", "How long calls that could not have the lock at once waited.")
	o.hold = histogram("hold.duration", "How long locks were held.")
	o.lag = histogram("renewal.lag", "How much later renewals were confirmed than they were due.")
	o.trip = histogram("node.round_trip.duration", "How long round trips to the node took.")
	o.acquiring = current("acquiring", "{call}", "Calls of Lock and TryLock in progress.")
	o.held = current("held", "{lock}", "Locks that are held.")
	o.lost = counter("lost", "{lock}", "Holds that were lost.")
	o.refused = counter("refused", "{call}", "Calls of Lock and TryLock that failed.")
	o.late = counter("renewal.late", "{renewal}", "How often the renewals of a hold began to fail.")
	o.up = gauge("node.up", "{node}", "1 if the last round trip to the node was answered, else 0.")
	o.flight = gauge("node.in_flight", "{attempt}", "Attempts that were sent to the node, and are unanswered.")
	o.limit = gauge("node.in_flight_limit", "{attempt}", "Attempts that may be in flight at the node.")
	o.unsent = gauge("unsent", "{attempt}", "Attempts that wait in the process for room at the nodes.")
	if err := cmp.Or(errs...); err != nil {
		return nil, fmt.Errorf("quorumlock: otellock.New: %w", err)
	}
	for _, reason := range reasons { // a rate misses the first loss if the counter begins with it
		o.lost.Add(context.Background(), 0, metric.WithAttributes(keyReason.String(string(reason))))
	}
	return o, nil
}

// acquisition is the data of the call of Lock, in the context of its lease.
type acquisition struct {
	span  trace.Span
	began context.Context // with the span
}

type acquisitionKey struct{}

func acquisitionOf(ctx context.Context) (acquisition, bool) {
	a, ok := ctx.Value(acquisitionKey{}).(acquisition)
	return a, ok
}

// Link returns a link to the span that acquired the lease. It is for spans of work under the lease
// elsewhere, such as in a queue or in another goroutine. The link is invalid if no Observer has
// seen the call.
func Link(lease *quorumlock.Lease) trace.Link {
	if lease == nil {
		return trace.Link{}
	}
	a, ok := acquisitionOf(lease.Context())
	if !ok {
		return trace.Link{}
	}
	return trace.Link{SpanContext: a.span.SpanContext(), Attributes: []attribute.KeyValue{keyToken.Int64(int64(lease.Token()))}}
}

// Begin implements quorumlock.Observer. The context that it returns has the span for Observe, but
// its current span is still the caller's span, for the work under the lock.
func (o *Observer) Begin(ctx context.Context, lock string) context.Context {
	began, span := o.tracer.Start(ctx, "quorumlock Lock", trace.WithAttributes(o.common(lock)...))
	o.acquiring.Add(ctx, 1, o.measured(lock))
	return context.WithValue(ctx, acquisitionKey{}, acquisition{span, began})
}

// Observe implements quorumlock.Observer.
func (o *Observer) Observe(ctx context.Context, e quorumlock.Event) {
	if e.Kind == quorumlock.EventNodeAsked { // one for each round trip
		of := o.ofNode(e.Node)
		up := int64(1)
		if e.Err != nil {
			up = 0
		}
		o.up.Record(ctx, up, of...)
		o.trip.Record(ctx, e.Took.Seconds(), of...)
		o.flight.Record(ctx, int64(e.InFlight), of...)
		o.limit.Record(ctx, int64(e.Limit), of...)
		o.unsent.Record(ctx, int64(e.Unsent))
		return
	}
	common := o.measured(e.Lock)
	switch e.Kind {
	case quorumlock.EventAcquired, quorumlock.EventRefused:
		o.ended(ctx, e)
	case quorumlock.EventRenewed:
		o.lag.Record(ctx, e.Lag.Seconds(), common)
	case quorumlock.EventRenewalLate:
		o.late.Add(ctx, 1, common)
		trace.SpanFromContext(ctx).AddEvent("quorumlock: renewal late", trace.WithAttributes(o.failure(e)...))
	case quorumlock.EventLost:
		o.held.Add(ctx, -1, common)
		o.hold.Record(ctx, e.Held.Seconds(), common)
		o.lost.Add(ctx, 1, common, metric.WithAttributes(keyReason.String(string(e.Reason))))
		trace.SpanFromContext(ctx).AddEvent("quorumlock: lease lost", trace.WithAttributes(append(o.failure(e), keyReason.String(string(e.Reason)))...))
	case quorumlock.EventReleased:
		o.released(ctx, e)
	}
}

// ofNode returns the options of measurements of a node. It caches them, since there are few nodes.
func (o *Observer) ofNode(node string) []metric.RecordOption {
	if of, ok := o.nodes.Load(node); ok {
		return of.([]metric.RecordOption)
	}
	of, _ := o.nodes.LoadOrStore(node, []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(keyNode.String(node)))})
	return of.([]metric.RecordOption)
}

// ended handles the end of a call of Lock or TryLock.
func (o *Observer) ended(ctx context.Context, e quorumlock.Event) {
	a, ok := acquisitionOf(ctx)
	if !ok {
		return
	}
	ctx = a.began
	span := a.span
	common := o.measured(e.Lock)
	operation := keyOperation.String("lock")
	if e.Try {
		operation = keyOperation.String("try_lock")
		span.SetName("quorumlock TryLock")
	}
	o.acquiring.Add(ctx, -1, common)
	span.SetAttributes(operation, keyAttempts.Int(e.Attempts))
	for _, s := range e.Steps {
		span.AddEvent(steps[s.Kind], trace.WithTimestamp(s.At), trace.WithAttributes(o.failure(quorumlock.Event{Err: s.Err})...))
	}
	if e.Err != nil {
		kind := keyError.String(e.ErrorType())
		o.refused.Add(ctx, 1, common, metric.WithAttributes(operation, kind))
		o.acquire.Record(ctx, e.Took.Seconds(), common, metric.WithAttributes(operation, kind))
		o.fail(span, e.Err)
	} else {
		o.acquire.Record(ctx, e.Took.Seconds(), common, metric.WithAttributes(operation))
		if e.Attempts > 0 { // otherwise it entered a hold
			o.held.Add(ctx, 1, common)
		}
		if e.Handed {
			span.AddEvent("handed over")
		}
		span.SetAttributes(keyToken.Int64(int64(e.Lease.Token())), keyHanded.Bool(e.Handed))
	}
	if e.Waited > 0 {
		o.wait.Record(ctx, e.Waited.Seconds(), common)
	}
	span.End()
}

var steps = map[quorumlock.StepKind]string{
	quorumlock.StepAttempt: "attempt", quorumlock.StepWaiting: "waiting", quorumlock.StepQueued: "waiting in the process",
}

// released handles the end of a call of Unlock.
func (o *Observer) released(ctx context.Context, e quorumlock.Event) {
	now := time.Now()
	ctx, span := o.tracer.Start(ctx, "quorumlock Unlock", trace.WithTimestamp(now.Add(-e.Took)), trace.WithLinks(Link(e.Lease)), trace.WithAttributes(o.common(e.Lock)...))
	if e.Ended {
		common := o.measured(e.Lock)
		o.held.Add(ctx, -1, common)
		o.hold.Record(ctx, e.Held.Seconds(), common)
	}
	if e.Err != nil {
		o.fail(span, e.Err)
	}
	span.End(trace.WithTimestamp(now))
}

// common returns the attributes of all spans and measurements of a lock.
func (o *Observer) common(lock string) []attribute.KeyValue {
	if !o.names || lock == "" {
		return nil
	}
	return []attribute.KeyValue{keyLock.String(lock)}
}

// measured returns the attributes of all measurements of a lock.
func (o *Observer) measured(lock string) metric.MeasurementOption {
	if common := o.common(lock); common != nil {
		return metric.WithAttributes(common...)
	}
	return o.plain
}

// fail records the failure of a call in its span. A refusal by another holder is not marked as an
// error.
func (o *Observer) fail(span trace.Span, err error) {
	kind := errorType(err)
	span.SetAttributes(keyError.String(kind))
	if kind != "held" {
		span.SetStatus(codes.Error, o.text(err))
	}
}

// failure returns the attributes of an event for a failure.
func (o *Observer) failure(e quorumlock.Event) []attribute.KeyValue {
	if e.Err == nil {
		return nil
	}
	return []attribute.KeyValue{keyError.String(e.ErrorType()), attribute.String("exception.message", o.text(e.Err))}
}

// text returns the text of an error. It may contain the names of the lock and its holder.
func (o *Observer) text(err error) string {
	if !o.names {
		return errorType(err)
	}
	return err.Error()
}

// errorType returns the type of the error in one word.
func errorType(err error) string { return quorumlock.Event{Err: err}.ErrorType() }
