package integration

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/redlock"
)

// shares is the model of a read-write lock whose leases may end by themselves: a writer is alone, and its token is higher than
// all before; a reader's is not lower than that of a writer before.
var shares = porcupine.Model{
	Init: func() any { return shareState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, in := state.(shareState), input.(shareInput)
		switch {
		case in.does == acquires && in.reads:
			ok := s.writer == 0 && in.token >= s.last
			s.readers, s.read = s.readers+1, max(s.read, in.token)
			return ok, s
		case in.does == acquires:
			ok := s.writer == 0 && s.readers == 0 && in.token > max(s.last, s.read)
			s.writer, s.last = in.token, in.token
			return ok, s
		case in.does == downgrades:
			ok := s.writer == in.token
			s.writer, s.readers = 0, s.readers+1
			return ok, s
		case in.reads:
			s.readers--
			return s.readers >= 0, s
		}
		ok := s.writer == in.token
		s.writer = 0
		return ok, s
	},
}

const downgrades = "downgrade"

type shareState struct {
	writer  uint64 // its token; no writer is 0
	readers int
	last    uint64 // the highest token of a writer
	read    uint64 // of a reader
}

type shareInput struct {
	does  string
	reads bool
	token uint64
}

// sharedGrant is one lease of a read-write lock as its holder saw it.
type sharedGrant struct {
	grant
	reads      bool
	downgraded time.Time // Downgrade was called; zero if it was not
}

// shareOperations are leases for the model shares. A lease that is lost ends at its deadline or, if its holder was told
// before, then; at that moment at the earliest. From when Downgrade was called on, a writer's is a reader's.
func (h *history) shareOperations(all []*sharedGrant) (ops []porcupine.Operation) {
	add := func(s *sharedGrant, does string, reads bool, call, back int64) {
		ops = append(ops, porcupine.Operation{ClientId: s.worker, Input: shareInput{does, reads, s.token}, Call: call, Return: back})
	}
	for _, s := range all {
		add(s, acquires, s.reads, h.at(s.called), h.at(s.granted))
		reads, back := s.reads, h.at(s.left)
		if !s.downgraded.IsZero() && s.downgraded.Before(s.end()) {
			reads = true
			add(s, downgrades, true, h.at(s.downgraded), h.at(s.end()))
		}
		if s.err != nil || s.end().Before(s.leaving) {
			back = never
		}
		add(s, releases, reads, h.at(s.end()), back)
	}
	return ops
}

// Readers and writers on real servers that fail: no writer beside anybody, and tokens that prove the order.
func TestReadersShareAndWritersAreAloneUnderFaults(t *testing.T) {
	needServers(t)
	underFaults(t, 20, func(t *testing.T) users { return &readersAndWriters{t: t, history: history{began: time.Now()}} }, quorumlock.WithTTL(workTTL))
}

// readersAndWriters is what they saw.
type readersAndWriters struct {
	t       *testing.T
	history history

	mu  sync.Mutex
	all []*sharedGrant
}

// turn is one critical section of a worker.
func (r *readersAndWriters) turn(worker int, c *redlock.Client) {
	m := c.RWMutex("ledger", quorumlock.WithWait(2*time.Second))
	s := &sharedGrant{grant: grant{worker: worker, lock: m.Name(), called: time.Now()}, reads: rand.N(10) < 7}
	call := m.Lock
	if s.reads {
		call = m.RLock
	}
	lease, err := call(context.Background())
	if err != nil {
		if !errors.Is(err, context.DeadlineExceeded) {
			r.t.Errorf("%v, want a lease or context.DeadlineExceeded", err)
		}
		return
	}
	s.granted, s.token = time.Now(), lease.Token()
	work := func(d time.Duration) {
		select {
		case <-lease.Context().Done():
			s.told = time.Now()
		case <-time.After(d):
		}
	}
	work(rand.N(20 * time.Millisecond))
	if !s.reads && s.told.IsZero() && rand.N(3) == 0 {
		s.downgraded = time.Now()
		_ = m.Downgrade(context.Background(), lease) // it is a reader's then, whatever the nodes say
		work(rand.N(20 * time.Millisecond))
	}
	s.until, s.leaving = lease.ValidUntil(), time.Now()
	s.err = lease.Unlock(context.Background())
	s.left = time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, s)
}

// served waits for so many more leases of readers, and for some of writers.
func (r *readersAndWriters) served(n int) {
	r.t.Helper()
	count := func() (readers, writers int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, s := range r.all {
			if s.reads {
				readers++
			} else {
				writers++
			}
		}
		return readers, writers
	}
	readers, writers := count()
	eventually(r.t, patience, "readers and writers get the lock", func() bool {
		a, b := count()
		return a >= readers+n && b >= writers+n/4
	})
}

func (r *readersAndWriters) check(servers []*server) {
	r.t.Helper()
	noLocks(r.t, servers, patience)
	slices.SortFunc(r.all, func(a, b *sharedGrant) int { return a.granted.Compare(b.granted) })
	together := 0
	for i, s := range r.all {
		if err := s.kept(); err != nil {
			r.t.Error(err)
		}
		if i > 0 && s.reads && r.all[i-1].reads && s.granted.Before(r.all[i-1].leaving) {
			together++
		}
	}
	if together == 0 {
		r.t.Error("no two readers have shared the lock")
	}
	if err := linearizable(pictures(), r.t.Name(), shares, r.history.shareOperations(r.all)); err != nil {
		r.t.Error(err)
	}
	r.t.Logf("%d leases, %d of them of readers beside another", len(r.all), together)
}

// A checker that cannot fail proves nothing.
func TestCheckerOfSharesRefusesBrokenHistories(t *testing.T) {
	type lease struct {
		reads                          bool
		token                          uint64
		called, granted, leaving, left int
		downgraded                     int
	}
	for _, tt := range []struct {
		name   string
		leases []lease
		good   bool
	}{
		{"readers share", []lease{{true, 5, 0, 10, 50, 60, 0}, {true, 6, 0, 20, 40, 50, 0}, {false, 7, 0, 70, 80, 90, 0}}, true},
		{"what is downgraded is shared", []lease{{false, 5, 0, 10, 50, 60, 20}, {true, 5, 0, 30, 40, 45, 0}}, true},
		{"a reader beside a writer", []lease{{false, 5, 0, 10, 50, 60, 0}, {true, 5, 0, 30, 40, 45, 0}}, false},
		{"a writer beside a reader", []lease{{true, 5, 0, 10, 50, 60, 0}, {false, 6, 0, 30, 40, 45, 0}}, false},
		{"a writer beside what was downgraded", []lease{{false, 5, 0, 10, 50, 60, 20}, {false, 6, 0, 30, 40, 45, 0}}, false},
		{"two writers", []lease{{false, 5, 0, 10, 50, 60, 0}, {false, 6, 0, 30, 40, 45, 0}}, false},
		{"a reader's token is that of a later writer", []lease{{true, 6, 0, 10, 20, 30, 0}, {false, 6, 40, 50, 60, 70, 0}}, false},
		{"a reader's token is lower than an earlier writer's", []lease{{false, 6, 0, 10, 20, 30, 0}, {true, 5, 40, 50, 60, 70, 0}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newStory()
			var all []*sharedGrant
			for i, l := range tt.leases {
				s := &sharedGrant{grant: *p.held(l.token, l.called, l.granted, l.leaving, l.left), reads: l.reads}
				if s.worker = i; l.downgraded > 0 {
					s.downgraded = p.ms(l.downgraded)
				}
				all = append(all, s)
			}
			if err := linearizable(t.TempDir(), t.Name(), shares, p.h.shareOperations(all)); (err == nil) != tt.good {
				t.Errorf("%v, want good %v", err, tt.good)
			}
		})
	}
}
