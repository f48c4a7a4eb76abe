package main

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/quorumlock/quorumlock/redlock"
)

// metrics serves the observer's latest results to Prometheus; docs/tool.md documents the metrics. A
// scrape sends no request to the nodes.
type metrics struct{ o *observer }

func newRegistry(o *observer) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(metrics{o}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

var described []*prometheus.Desc

func describe(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("quorumlock_"+name, help, labels, nil)
	described = append(described, d)
	return d
}

var (
	nodesDesc        = describe("nodes", "How many nodes there are.")
	neededDesc       = describe("nodes_needed", "How many nodes must grant a lock: the quorum.")
	readyDesc        = describe("nodes_ready", "How many nodes would grant a lock now.")
	spareDesc        = describe("nodes_to_spare", "How many more nodes may fail before no lock is granted; negative: how many are missing for a quorum.")
	upDesc           = describe("node_up", "1 if the node would grant a lock now.", "node")
	roundTripDesc    = describe("node_round_trip_seconds", "How long the node took to answer.", "node")
	nodeFailuresDesc = describe("node_failures_total", "Looks at which the node was not up.", "node")
	looksDesc        = describe("looks_total", "Looks at the nodes.")
	lookTimeDesc     = describe("look_timestamp_seconds", "Unix time of the latest look at the nodes.")

	fitDesc       = describe("node_fit", "1 if nothing worse than advice is found about the node.", "node")
	findingDesc   = describe("finding", "1 for each thing that check finds.", "kind", "node", "severity")
	clockDesc     = describe("node_clock_offset_seconds", "How far the clock of the node is ahead of this machine's.", "node")
	uptimeDesc    = describe("node_uptime_seconds", "Time since the server of the node started.", "node")
	infoDesc      = describe("node_info", "1 for a node that answers.", "node", "version", "role")
	checkTimeDesc = describe("check_timestamp_seconds", "Unix time of the latest check of the nodes.")

	locksDesc          = describe("locks", "Locks that are held or waited for.", "kind")
	holdersDesc        = describe("holders", "Owners that hold, share or have a slot.")
	waitersDesc        = describe("waiters", "Entries in all queues.")
	longestQueueDesc   = describe("longest_queue", "Entries in the longest queue.")
	oldestWaitDesc     = describe("oldest_wait_seconds", "The longest time that the first in any queue has waited.")
	longestHoldDesc    = describe("longest_hold_seconds", "The longest time for which the same owner was seen to hold a lock.")
	completeDesc       = describe("survey_complete", "1 if the survey looked at all locks; 0 if there are more than the limit.")
	surveyDurationDesc = describe("survey_duration_seconds", "How long the latest survey took.")
	surveyTimeDesc     = describe("survey_timestamp_seconds", "Unix time of the latest survey that succeeded.")
	surveysDesc        = describe("surveys_total", "Surveys of the locks, including those that failed.")
	surveyErrorsDesc   = describe("survey_errors_total", "Surveys of the locks that failed.")

	lockHeldDesc    = describe("lock_held", "1 if somebody holds or shares the lock, or has a slot.", "lock")
	lockWaitersDesc = describe("lock_waiters", "Entries in the queue of the lock.", "lock")
	lockWaitDesc    = describe("lock_oldest_wait_seconds", "How long the first in the queue of the lock has waited.", "lock")
	lockHoldDesc    = describe("lock_hold_seconds", "For how long the same owner was seen to hold the lock.", "lock")
)

func (metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range described {
		ch <- d
	}
}

func (m metrics) Collect(ch chan<- prometheus.Metric) {
	s := sink(ch)
	nodes, check, locks, counts := m.o.seen()
	s.gauge(nodesDesc, float64(len(m.o.client.nodes)))
	s.gauge(neededDesc, float64(m.o.client.quorum))
	s.count(looksDesc, counts.looks)
	s.count(surveysDesc, counts.surveys)
	s.count(surveyErrorsDesc, counts.surveyErrors)
	if !nodes.at.IsZero() {
		s.nodes(nodes, counts.nodeFailures)
	}
	if !check.at.IsZero() {
		s.check(check)
	}
	if !locks.at.IsZero() {
		s.gauge(surveyTimeDesc, unixTime(locks.at))
	}
	if !locks.tried.IsZero() {
		s.gauge(surveyDurationDesc, locks.took.Seconds())
		if locks.err == nil {
			s.locks(locks)
		}
	}
}

// sink receives metrics.
type sink chan<- prometheus.Metric

func (s sink) gauge(d *prometheus.Desc, value float64, labels ...string) {
	s.put(d, prometheus.GaugeValue, value, labels)
}

func (s sink) count(d *prometheus.Desc, n int, labels ...string) {
	s.put(d, prometheus.CounterValue, float64(n), labels)
}

func (s sink) put(d *prometheus.Desc, t prometheus.ValueType, value float64, labels []string) {
	for i, l := range labels {
		labels[i] = strings.ToValidUTF8(l, "\ufffd")
	}
	s <- prometheus.MustNewConstMetric(d, t, value, labels...)
}

func (s sink) nodes(seen nodesSeen, failures []int) {
	s.gauge(readyDesc, float64(seen.top.ready()))
	s.gauge(spareDesc, float64(seen.top.MayDie))
	s.gauge(lookTimeDesc, unixTime(seen.at))
	for i, n := range seen.top.Nodes {
		s.gauge(upDesc, truth(n.OK), n.Node)
		s.count(nodeFailuresDesc, failures[i], n.Node)
		if n.OK {
			s.gauge(roundTripDesc, n.RoundTrip, n.Node)
		}
	}
}

func (s sink) check(seen checkSeen) {
	s.gauge(checkTimeDesc, unixTime(seen.at))
	unfit := seen.unfit()
	for _, n := range seen.health.Nodes {
		s.gauge(fitDesc, truth(!unfit[n.Node]), n.Node)
		if n.Err != nil {
			continue
		}
		s.gauge(clockDesc, n.Status.ClockOffset.Seconds(), n.Node)
		s.gauge(infoDesc, 1, n.Node, n.Status.Version, n.Status.Role)
		if n.Status.RunID != "" { // its status is known
			s.gauge(uptimeDesc, n.Status.Uptime.Seconds(), n.Node)
		}
	}
	type series struct{ kind, node, severity string }
	found := make(map[series]bool)
	for _, f := range seen.health.Findings {
		k := series{string(f.Kind), f.Node, string(f.Severity)}
		if !found[k] { // one node may have two findings of a kind
			s.gauge(findingDesc, 1, k.kind, k.node, k.severity)
		}
		found[k] = true
	}
}

func (s sink) locks(seen locksSeen) {
	kinds := map[string]int{kindMutex: 0, kindReaders: 0, kindSemaphore: 0, kindFree: 0}
	var holders, waiters, longest int
	var hold float64
	var wait time.Duration
	for _, l := range seen.locks {
		kinds[l.Kind]++
		holders += l.holders
		waiters += l.State.Waiting
		longest = max(longest, l.State.Waiting)
		wait = max(wait, l.wait())
		hold = max(hold, l.Seen)
	}
	for kind, n := range kinds {
		s.gauge(locksDesc, float64(n), kind)
	}
	s.gauge(holdersDesc, float64(holders))
	s.gauge(waitersDesc, float64(waiters))
	s.gauge(longestQueueDesc, float64(longest))
	s.gauge(oldestWaitDesc, wait.Seconds())
	s.gauge(longestHoldDesc, hold)
	s.gauge(completeDesc, truth(!seen.more))
	for _, l := range seen.named {
		s.gauge(lockHeldDesc, truth(l.Held), shown(l.Name))
		s.gauge(lockWaitersDesc, float64(l.State.Waiting), shown(l.Name))
		s.gauge(lockWaitDesc, l.wait().Seconds(), shown(l.Name))
		s.gauge(lockHoldDesc, l.Seen, shown(l.Name))
	}
}

// unfit returns the nodes with a finding above advice.
func (c checkSeen) unfit() map[string]bool {
	nodes := make(map[string]bool)
	for _, f := range c.health.Findings {
		if f.Severity != redlock.SeverityAdvice {
			nodes[f.Node] = true
		}
	}
	return nodes
}

// wait returns how long the first waiter has been in the queue.
func (l *topLock) wait() time.Duration {
	if len(l.State.Queue) == 0 {
		return 0
	}
	return l.Waits(l.State.Queue[0])
}

func truth(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func unixTime(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
