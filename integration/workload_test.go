package integration

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

const (
	workers   = 8
	steadyTTL = 10 * time.Second // of a lease that is held all along

	// margin is the delay of a busy machine for work that waits for no network.
	margin = 2 * time.Second
)

// workTTL is the TTL of the workers' leases, and workTimeout that of one node. A soak may set others.
var (
	workTTL     = 900 * time.Millisecond
	workTimeout = workTTL / 3
)

var workLocks = []string{"jobs", "invoices", "{tenant 7}:reports", "migrate"}

// countersApart gives every server a different token counter for each of the workload's locks, far
// ahead of the clock: from here on, the rise of tokens depends on the counters.
func countersApart(t *testing.T, servers []*server) {
	t.Helper()
	for i, s := range servers {
		for _, name := range workLocks {
			from := time.Now().Add(time.Hour).UnixMicro() + int64(100*i)
			must(t, s.admin.Set(patiently(t), wire.TokenKey(name), from, time.Hour).Err())
		}
	}
}

// workload is eight clients, each with its own connections like separate processes. They lock,
// work, write to the store, and unlock, until end, which checks the promises against their history.
// All are in one process, so that one monotonic clock orders the events.
type workload struct {
	t        *testing.T
	beyond   bool              // the faults are more than the bound of the exclusion allows
	clients  []*redlock.Client // one a worker, and one for steady
	nodes    []*node.Node
	servers  []*server
	locks    []string
	before   goleak.Option
	stop     chan struct{}
	stopOnce sync.Once
	running  sync.WaitGroup
	history  history
	stores   map[string]*store
}

// begin starts the workload at nodes that count quorum of them. At its end servers must be empty.
func begin(t *testing.T, quorum int, nodes func(*testing.T) []*node.Node, servers []*server, opts ...quorumlock.Option) *workload {
	t.Helper()
	w := &workload{
		t: t, servers: servers, locks: workLocks,
		before: goleak.IgnoreCurrent(), stop: make(chan struct{}), stores: make(map[string]*store),
	}
	w.history.began = time.Now()
	for _, name := range w.locks {
		w.stores[name] = new(store)
	}
	t.Cleanup(func() { // of a test that did not come to its end
		w.halt()
		w.close()
	})
	for range workers + 1 {
		ns := nodes(t)
		c, err := redlock.New(ns, append(opts, quorumlock.WithQuorum(quorum), quorumlock.WithTTL(workTTL), quorumlock.WithNodeTimeout(workTimeout))...)
		must(t, err)
		w.clients, w.nodes = append(w.clients, c), append(w.nodes, ns...)
	}
	w.history.turns = make([]int, workers)
	for worker := range workers {
		w.running.Go(func() {
			for {
				select {
				case <-w.stop:
					return
				default:
					w.turn(worker)
				}
			}
		})
	}
	return w
}

// steady returns a lease that is held all along.
func (w *workload) steady(ttl time.Duration) *quorumlock.Lease {
	w.t.Helper()
	why := slog.New(slog.NewTextHandler(w.t.Output(), nil)) // should it be lost
	return lock(w.t, w.clients[workers], "steady", quorumlock.WithTTL(ttl), quorumlock.WithNodeTimeout(ttl/5), quorumlock.WithLogger(why))
}

// kept checks that a steady lease can be extended now.
func (w *workload) kept(lease *quorumlock.Lease) {
	w.t.Helper()
	var err error
	eventually(w.t, patience, "the steady lease is extended, or lost", func() bool {
		err = lease.Extend(w.t.Context())
		return err == nil || errors.Is(err, quorumlock.ErrLost)
	})
	if err != nil {
		w.t.Errorf("Extend of the steady lease: %v", err)
	}
}

// served waits until every lock has been granted to n calls that began after now.
func (w *workload) served(n int) {
	w.t.Helper()
	from := time.Now()
	eventually(w.t, patience, fmt.Sprintf("every lock is granted %d times", n), func() bool {
		grants, _ := w.history.since(from)
		for _, name := range w.locks {
			if grants[name] < n {
				return false
			}
		}
		return true
	})
}

// turned waits until every worker has ended its present turn.
func (w *workload) turned() {
	w.t.Helper()
	before := w.history.turned()
	eventually(w.t, patience, "every worker goes on", func() bool {
		for i, n := range w.history.turned() {
			if n == before[i] {
				return false
			}
		}
		return true
	})
}

// end stops the workload when all faults are healed, and checks all promises.
func (w *workload) end() {
	w.t.Helper()
	w.halt()
	noLocks(w.t, w.servers, patience)
	w.close()
	var left error
	eventually(w.t, patience, "no goroutine is left", func() bool {
		left = goleak.Find(w.before, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
			goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
		return left == nil
	})
	if left != nil {
		w.t.Error(left)
	}
	w.history.check(w.t, !w.beyond)
	for name, s := range w.stores {
		s.check(w.t, name)
	}
	if w.beyond {
		w.t.Log("beyond the bound:", w.history.tally())
		return
	}
	w.t.Log(w.history.tally()) // .ci/servers adds the grants up
}

// halt returns when every worker has stopped.
func (w *workload) halt() {
	w.stopOnce.Do(func() { close(w.stop) })
	w.running.Wait()
}

func (w *workload) close() {
	for _, c := range w.clients {
		if err := c.Close(); err != nil {
			w.t.Error(err)
		}
	}
	for _, n := range w.nodes {
		// Clients that were not dialled stay open otherwise.
		_ = n.Client().Close()
	}
}
