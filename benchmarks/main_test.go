package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/testkit/require"
)

func TestFlagsThatCannotWorkAreNamed(t *testing.T) {
	for _, args := range []string{"-part lunch", "-store tape", "-contenders 0", "-contenders 4,x", "-callers 100000", "-crowd 0", "-crowd 1000,many", "-crowd 1000000", "-stall 3", "-stall -1s", "-stall 1h", "-time 1h", "-used 0", "-idle -1s", "-idle 100h", "-rounds 0", "-most 3", "-check -quick"} {
		_, err := parseFlags(strings.Fields(args), io.Discard)
		if flag, _, _ := strings.Cut(args, " "); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("%s: error %v does not name %s", args, err, flag)
		}
	}
	cfg, err := parseFlags(nil, io.Discard)
	if err != nil || cfg.least < 5 || cfg.most < cfg.least || len(cfg.parts) != len(allParts) {
		t.Errorf("the defaults: %+v, %v", cfg, err)
	}
}

func TestMissingServersAreSaidInWords(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := startRedis(t.Context(), t.TempDir(), 1, false)
	var missing *notInstalled
	if !errors.As(err, &missing) || !strings.Contains(err.Error(), "apt-get install redis-server") {
		t.Errorf("error %v does not say what to install", err)
	}
	if _, err := startEtcd(t.Context(), t.TempDir()); !errors.As(err, &missing) {
		t.Errorf("etcd: %v", err)
	}
}

// needRedis returns servers of one store.
func needRedis(t *testing.T, s store) *fleet {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		require.Skip(t, "QUORUMLOCK_REQUIRE_REDIS", "redis-server is not installed")
	}
	f, err := newFleet(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// Each kind of job, as a worker does it, gives the figures that tables and promises read.
func TestWorkerMeasuresWhatThePromisesAsk(t *testing.T) {
	f := needRedis(t, durable)
	p := plan{callers: []int{1, 256}, contenders: []int{4}, time: 200 * time.Millisecond, leases: 20, leaseTime: 200 * time.Millisecond,
		crowds: []crowd{{ownLocks, 100}}, patience: 10 * time.Second, stalls: []time.Duration{50 * time.Millisecond}, stalled: 50, second: 100 * time.Millisecond, used: 500, idle: 50 * time.Millisecond}
	for _, part := range allParts {
		if part.name == "tests" {
			continue
		}
		for _, d := range []string{ours, redsyncName} {
			t.Run(part.name+"/"+d, func(t *testing.T) {
				f.missing[onEtcd], f.missing[onPostgres], f.missing[onZooKeeper] = io.EOF, io.EOF, io.EOF
				contests, err := part.contests(t.Context(), p, f)
				if err == nil && len(contests) == 0 { // this part is for servers in memory alone
					f.store = inMemory
					contests, err = part.contests(t.Context(), p, f)
					f.store = durable
				}
				if err != nil {
					t.Fatal(err)
				}
				c := contests[0]
				for _, e := range c.entries {
					if e.job.Design == d {
						c.checkWorker(t, e, f)
					}
				}
			})
		}
	}
}

func (c *contest) checkWorker(t *testing.T, e entry, f *fleet) {
	t.Helper()
	if err := f.redis.clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked, err := json.Marshal(e.job)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := worker(t.Context(), bytes.NewReader(asked), &out); err != nil {
		t.Fatal(err)
	}
	var a answer
	if err := json.Unmarshal(out.Bytes(), &a); err != nil {
		t.Fatal(err)
	}
	if a.Err != "" || a.Failure != "" {
		t.Fatalf("%s: %s %s", e.name, a.Err, a.Failure)
	}
	for _, m := range c.columns {
		if _, ok := a.Figures[m]; !ok && m != goroutines && m != lost && m != serverCPU && m != reads && m != writes && m != goWorst {
			t.Errorf("%s: no figure for %q", e.name, m)
		}
	}
}

// Even if pairs at random times are rare and the load is short, at least one pair is measured.
func TestARareArrivalIsMeasured(t *testing.T) {
	var done atomic.Int64
	callers := []caller{{done: &done}}
	from := time.Now().Add(time.Millisecond)
	job{Rate: 1e-3}.arrive(t.Context(), []client{freeLock{}}, callers, from, from.Add(time.Millisecond))
	if n := len(callers[0].took); n != 1 {
		t.Errorf("%d pairs were measured, want 1", n)
	}
}

// freeLock is always free.
type freeLock struct{}

func (freeLock) lock(context.Context, string) (func(context.Context) error, error) {
	return func(context.Context) error { return nil }, nil
}

func (freeLock) close() error { return nil }

func TestWorkerSaysWhatWentWrong(t *testing.T) {
	var out bytes.Buffer
	if err := worker(t.Context(), strings.NewReader(`{"Kind":"load","Design":"no such"}`), &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "no such") {
		t.Errorf("the answer is %s", &out)
	}
}
