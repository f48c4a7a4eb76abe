// Package promlock makes metrics of locks for Prometheus, with github.com/prometheus/client_golang.
// Its folder has alerts, in rules.yaml, and a dashboard for Grafana, in dashboard.json.
//
//	observer, err := promlock.New(prometheus.DefaultRegisterer)
//	...
//	client, err := redlock.New(nodes, quorumlock.WithObserver(observer))
//
// The names, labels and buckets are those of contrib/otel with OpenTelemetry's exporter for
// Prometheus, so the alerts and the dashboard work with either:
//
//	quorumlock_acquire_duration_seconds          histogram  a call of Lock or TryLock
//	quorumlock_wait_duration_seconds             histogram  waiting time of calls that had to wait
//	quorumlock_hold_duration_seconds             histogram  from the grant to the release or loss
//	quorumlock_acquiring                         gauge      calls of Lock and TryLock in progress
//	quorumlock_held                              gauge      locks that are held now
//	quorumlock_lost_total                        counter    lost holds, by quorumlock_lost_reason
//	quorumlock_refused_total                     counter    failed calls, by error_type
//	quorumlock_renewal_lag_seconds               histogram  from the due time to the confirmation
//	quorumlock_renewal_late_total                counter    first failures of a hold's renewals
//	quorumlock_node_up                           gauge      1 if the node answered last time, or 0
//	quorumlock_node_round_trip_duration_seconds  histogram  a round trip, with its local queueing
//	quorumlock_node_in_flight                    gauge      attempts that were sent, unanswered
//	quorumlock_node_in_flight_limit              gauge      attempts that may be in flight
//	quorumlock_unsent                            gauge      attempts that wait for room at the nodes
//
// The waiting time is the part of a call in which another holder, or the lack of a quorum or of
// room at the nodes, delayed it. Failed calls are calls of Lock and TryLock. The last three
// metrics have their values at the last round trip. If clients share an Observer, the values are
// those of the client that made this round trip.
//
// The labels have few values: quorumlock_operation is lock or try_lock, error_type is that of
// quorumlock.Event.ErrorType, quorumlock_lost_reason is a [quorumlock.LossReason], and
// quorumlock_node is the node's address, or the name from node.WithName. The names of locks are in
// quorumlock_lock_name only with [WithLockNames].
package promlock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorumlock/quorumlock"
)

// An Option configures an [Observer].
type Option func(*Observer)

// WithLockNames adds the label quorumlock_lock_name. Each name adds its own series. Use this option
// only in programs with few names, and without private data in the names.
func WithLockNames() Option { return func(o *Observer) { o.names = true } }

// Observer is a [quorumlock.Observer]. It is safe for concurrent use, and may serve several
// clients; its zero value is not usable.
type Observer struct {
	names bool

	acquire, wait, hold, lag, trip *prometheus.HistogramVec
	acquiring, held, up            *prometheus.GaugeVec
	flight, limit, unsent          *prometheus.GaugeVec
	lost, refused, late            *prometheus.CounterVec
}

var _ quorumlock.Observer = (*Observer)(nil)

var reasons = []quorumlock.LossReason{
	quorumlock.LossNotRenewed, quorumlock.LossNotExtended, quorumlock.LossKeysGone, quorumlock.LossMaxHold, quorumlock.LossClosed,
	quorumlock.LossResigned,
}

// buckets, in seconds, cover a lock in one data centre up to a wait of minutes.
var buckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// The labels.
const (
	labelLock      = "quorumlock_lock_name"
	labelOperation = "quorumlock_operation"
	labelReason    = "quorumlock_lost_reason"
	labelNode      = "quorumlock_node"
	labelError     = "error_type"
)

// New returns an Observer for quorumlock.WithObserver, and registers its metrics with r, such as
// [prometheus.DefaultRegisterer]. It returns an error if r is nil, or has metrics of the same
// names: use one Observer for all clients.
func New(r prometheus.Registerer, opts ...Option) (*Observer, error) {
	if r == nil {
		return nil, errors.New("quorumlock: promlock.New: the Registerer is nil: use prometheus.DefaultRegisterer, or a Registry")
	}
	o := new(Observer)
	for _, set := range opts {
		if set != nil {
			set(o)
		}
	}
	var all []prometheus.Collector
	of := func(labels []string) []string {
		if o.names {
			labels = append(labels, labelLock)
		}
		return labels
	}
	histogram := func(name, help string, labels []string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "quorumlock_" + name, Help: help, Buckets: buckets}, labels)
		all = append(all, h)
		return h
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "quorumlock_" + name, Help: help}, of(labels))
		all = append(all, c)
		return c
	}
	gauge := func(name, help string, labels []string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "quorumlock_" + name, Help: help}, labels)
		all = append(all, g)
		return g
	}
	node := []string{labelNode}
	o.acquire = histogram("acquire_duration_seconds", "How long calls of Lock and TryLock took.", of([]string{labelOperation, labelError}))
	o.wait = histogram("wait_duration_seconds", "How long calls that could not have the lock at once waited.", of(nil))
	o.hold = histogram("hold_duration_seconds", "How long locks were held.", of(nil))
	o.lag = histogram("renewal_lag_seconds", "How much later renewals were confirmed than they were due.", of(nil))
	o.trip = histogram("node_round_trip_duration_seconds", "How long round trips to the node took.", node)
	o.acquiring = gauge("acquiring", "Calls of Lock and TryLock in progress.", of(nil))
	o.held = gauge("held", "Locks that are held.", of(nil))
	o.up = gauge("node_up", "1 if the last round trip to the node was answered, else 0.", node)
	o.flight = gauge("node_in_flight", "Attempts that were sent to the node, and are unanswered.", node)
	o.limit = gauge("node_in_flight_limit", "Attempts that may be in flight at the node.", node)
	o.unsent = gauge("unsent", "Attempts that wait in the process for room at the nodes.", nil)
	o.lost = counter("lost_total", "Holds that were lost.", labelReason)
	o.refused = counter("refused_total", "Calls of Lock and TryLock that failed.", labelOperation, labelError)
	o.late = counter("renewal_late_total", "How often the renewals of a hold began to fail.")
	for i, c := range all {
		if err := r.Register(c); err != nil {
			for _, registered := range all[:i] {
				r.Unregister(registered)
			}
			return nil, fmt.Errorf("quorumlock: promlock.New: %s: give one Observer to all clients, or a Registerer to each", oneLine(err))
		}
	}
	for _, reason := range reasons { // a rate misses the first loss if the counter begins with it
		o.lost.WithLabelValues(o.labels("", string(reason))...)
	}
	return o, nil
}

// oneLine returns the text of an error without its line breaks.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// labels appends the name of a lock to the values of labels, with WithLockNames.
func (o *Observer) labels(lock string, values ...string) []string {
	if o.names {
		values = append(values, strings.ToValidUTF8(lock, "\ufffd"))
	}
	return values
}

// Begin implements quorumlock.Observer.
func (o *Observer) Begin(ctx context.Context, lock string) context.Context {
	o.acquiring.WithLabelValues(o.labels(lock)...).Inc()
	return ctx
}

// Observe implements quorumlock.Observer.
func (o *Observer) Observe(_ context.Context, e quorumlock.Event) {
	if e.Kind == quorumlock.EventNodeAsked { // one for each round trip
		up := 1.0
		if e.Err != nil {
			up = 0
		}
		o.up.WithLabelValues(e.Node).Set(up)
		o.trip.WithLabelValues(e.Node).Observe(e.Took.Seconds())
		o.flight.WithLabelValues(e.Node).Set(float64(e.InFlight))
		o.limit.WithLabelValues(e.Node).Set(float64(e.Limit))
		o.unsent.WithLabelValues().Set(float64(e.Unsent))
		return
	}
	switch e.Kind {
	case quorumlock.EventAcquired, quorumlock.EventRefused:
		o.ended(e)
	case quorumlock.EventRenewed:
		o.lag.WithLabelValues(o.labels(e.Lock)...).Observe(e.Lag.Seconds())
	case quorumlock.EventRenewalLate:
		o.late.WithLabelValues(o.labels(e.Lock)...).Inc()
	case quorumlock.EventLost:
		o.holdEnded(e)
		o.lost.WithLabelValues(o.labels(e.Lock, string(e.Reason))...).Inc()
	case quorumlock.EventReleased:
		if e.Ended {
			o.holdEnded(e)
		}
	}
}

// ended handles the end of a call of Lock or TryLock.
func (o *Observer) ended(e quorumlock.Event) {
	operation := "lock"
	if e.Try {
		operation = "try_lock"
	}
	name := o.labels(e.Lock)
	o.acquiring.WithLabelValues(name...).Dec()
	labels := o.labels(e.Lock, operation, e.ErrorType())
	o.acquire.WithLabelValues(labels...).Observe(e.Took.Seconds())
	if e.Err != nil {
		o.refused.WithLabelValues(labels...).Inc()
	} else if e.Attempts > 0 { // otherwise it entered a hold
		o.held.WithLabelValues(name...).Inc()
	}
	if e.Waited > 0 {
		o.wait.WithLabelValues(name...).Observe(e.Waited.Seconds())
	}
}

func (o *Observer) holdEnded(e quorumlock.Event) {
	name := o.labels(e.Lock)
	o.held.WithLabelValues(name...).Dec()
	o.hold.WithLabelValues(name...).Observe(e.Held.Seconds())
}
