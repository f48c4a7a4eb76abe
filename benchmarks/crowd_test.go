package main

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A job in several processes starts this program again, which is the test.
func TestMain(m *testing.M) {
	if slices.Contains(os.Args[1:], "-worker") {
		main()
		return
	}
	os.Exit(m.Run())
}

// oddLock fails every second Lock, and every second Unlock of the others. With stuck, some calls of
// Lock return only when stuck is closed.
type oddLock struct {
	calls atomic.Int64
	stuck chan struct{}
}

func (l *oddLock) lock(context.Context, string) (func(context.Context) error, error) {
	n := l.calls.Add(1)
	if n%4 == 1 && l.stuck != nil {
		<-l.stuck
	}
	if n%2 == 1 {
		return nil, errors.New("no lock")
	}
	if n%4 == 0 {
		return func(context.Context) error { return errors.New("no\nunlock") }, nil
	}
	time.Sleep(time.Second)
	return func(context.Context) error { return nil }, nil
}

func (l *oddLock) close() error { return nil }

func TestEveryCallerOfACrowdIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := job{Callers: 100, Time: time.Minute}.together(t.Context(), []client{&oddLock{}})
		a := c.answer(0)
		for m, want := range (figures{granted: 50, failed: 75, seconds: 1, pairs: 25, p50: 0, p99: 1000}) {
			if a.Figures[m] != want {
				t.Errorf("%s: %v, want %v", m, a.Figures[m], want)
			}
		}
		if _, ok := a.Figures[everyone]; ok {
			t.Error("a crowd with failures has a time for all")
		}
		if want := "50 of Lock: no lock; 25 of Unlock: no: unlock"; a.Failure != want {
			t.Errorf("%q, want %q", a.Failure, want)
		}
	})
}

// A call that never returns is a failure, and does not hold up the measurement.
func TestACrowdThatDoesNotReturnEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &oddLock{stuck: make(chan struct{})}
		defer close(l.stuck)
		c := job{Callers: 100, Time: time.Minute}.together(t.Context(), []client{l})
		if c.Locks.Count != 50 || len(c.Waits) != 50 || c.Took != time.Minute+unwinding {
			t.Errorf("%d failed, %d granted, in %v", c.Locks.Count, len(c.Waits), c.Took)
		}
	})
}

// The processes of a crowd start together, and their results are summed up.
func TestACrowdOfProcessesIsSummedUp(t *testing.T) {
	f := needRedis(t, inMemory)
	w := crowd{ofClients, 4 * crowdProcesses}
	c := w.contest(t.Context(), plan{patience: 10 * time.Second}, f)
	c.checkWorker(t, c.entries[0], f)
	j := c.entries[0].job
	a, err := j.do(t.Context())
	if err != nil || a.Figures[granted] != float64(w.callers) || a.Figures[clientCPU] == 0 || a.Figures[everyone] == 0 {
		t.Errorf("%v, %v", a, err)
	}
	// A process that fails ends the wait for it.
	j.Design, j.Addrs = setnxName, []string{"127.0.0.1:0"}
	if _, err := j.do(t.Context()); err == nil || !strings.Contains(err.Error(), "0 of 1 keys") {
		t.Errorf("error %v", err)
	}
}

func TestWhereTheOtherFailsAThirdIsTheMeasure(t *testing.T) {
	p := atMost(0.7, ours, everyone).times(redsyncName).orTimes(1.5, setnxName)
	r := rounds{
		ours:        {{everyone: 3}, {everyone: 3}, {}},
		redsyncName: {{everyone: 6}, {}, {everyone: 6}},
		setnxName:   {{everyone: 1}, {everyone: 1}, {everyone: 1}},
	}
	if xs := p.values(r); !slices.Equal(xs, []float64{0.5, 2}) {
		t.Errorf("%v, want 3/6, and 3 over 1.5 times 1", xs)
	}
}
