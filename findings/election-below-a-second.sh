#!/usr/bin/env bash
# client-go elects two leaders at once if the lease lasts less than a second.
#
# Expected: a LeaseDuration of 900 ms works, or NewLeaderElector refuses it: it checks the three durations against each other.
# Seen:     it is accepted, and written to the record as whole seconds: 0. A candidate takes a record of 0 s as soon as it has
#           seen it twice without a renewal in between, whatever its own LeaseDuration says. So it leads while the first leader
#           renews in time, and goes on leading until its RenewDeadline. (1.9 s are written as 1 s.)
# Package:  k8s.io/client-go v0.37.2 (the first build takes minutes)
# Date:     2026-11-28
. "$(dirname "$0")/lib.bash"
program k8s.io/client-go@v0.37.2 <<'END'
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lease is a record in memory, which changes only if the writer has read the newest version, as the API server sees to it.
type lease struct {
	mu      sync.Mutex
	record  resourcelock.LeaderElectionRecord
	version int
}

type lock struct {
	*lease
	id   string
	seen int
}

func (l *lock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.version == 0 {
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{}, "lease")
	}
	l.seen = l.version
	record := l.record
	raw, err := json.Marshal(record)
	return &record, append(raw, fmt.Sprint(l.version)...), err
}

func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

func (l *lock) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.version != l.seen {
		return errors.New("the object has been modified")
	}
	l.version++
	l.record, l.seen = record, l.version
	return nil
}

func (l *lock) RecordEvent(string) {}
func (l *lock) Identity() string   { return l.id }
func (l *lock) Describe() string   { return "lease" }

func main() {
	shared := &lease{}
	run := func(id string, retry time.Duration) (leads, stopped chan time.Time) {
		leads, stopped = make(chan time.Time, 1), make(chan time.Time, 1)
		elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock:          &lock{lease: shared, id: id},
			LeaseDuration: 900 * time.Millisecond, RenewDeadline: 800 * time.Millisecond, RetryPeriod: retry,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { leads <- time.Now() },
				OnStoppedLeading: func() { stopped <- time.Now() },
			},
		})
		if err != nil {
			panic(err)
		}
		go elector.Run(context.Background())
		return leads, stopped
	}
	leads, stopped := run("first", 300*time.Millisecond)
	began := <-leads
	shared.mu.Lock()
	fmt.Println("seconds in the record:", shared.record.LeaseDurationSeconds)
	shared.mu.Unlock()
	leads, _ = run("second", 50*time.Millisecond)
	second, first := <-leads, <-stopped
	fmt.Println("the second leads less than 900 ms after the first one's start:", second.Sub(began) < 900*time.Millisecond)
	fmt.Println("both lead for more than 400 ms:", first.Sub(second) > 400*time.Millisecond)
}
END
recorded "$(timeout 60 "$program" 2>/dev/null)" <<'END'
seconds in the record: 0
the second leads less than 900 ms after the first one's start: true
both lead for more than 400 ms: true
END
