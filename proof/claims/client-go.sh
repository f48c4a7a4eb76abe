#!/usr/bin/env bash
# What docs/election.md says about client-go's package leaderelection.
#
# Package: k8s.io/client-go v0.37.2 (the first build takes minutes)
# Date:    2026-11-29
. "$(dirname "$0")/../../findings/lib.bash"
program k8s.io/client-go@v0.37.2 <<'END'
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lease is a record in memory, which changes only if the writer has read the newest version. Without its server, calls fail.
type lease struct {
	mu      sync.Mutex
	record  resourcelock.LeaderElectionRecord
	version int
	away    bool
}

// lock is a candidate's view of the lease.
type lock struct {
	*lease
	id   string
	seen int
}

func (l *lock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.away:
		return nil, nil, errors.New("the server is away")
	case l.version == 0:
		return nil, nil, apierrors.NewNotFound(schema.GroupResource{}, "lease")
	}
	l.seen = l.version
	record := l.record
	return &record, fmt.Append(nil, l.version), nil
}

func (l *lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Update(ctx, record)
}

func (l *lock) Update(_ context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away || l.version != l.seen {
		return errors.New("refused")
	}
	l.version++
	l.record, l.seen = record, l.version
	return nil
}

func (l *lock) RecordEvent(string) {}
func (l *lock) Identity() string   { return l.id }
func (l *lock) Describe() string   { return "lease" }

type candidate struct {
	*leaderelection.LeaderElector
	health *leaderelection.HealthzAdaptor
	events chan string
	work   chan context.Context
}

func join(shared *lease, id string) candidate {
	c := candidate{events: make(chan string, 100), work: make(chan context.Context, 1), health: leaderelection.NewLeaderHealthzAdaptor(time.Millisecond)}
	var err error
	c.LeaderElector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          &lock{lease: shared, id: id},
		LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 200 * time.Millisecond,
		ReleaseOnCancel: true, WatchDog: c.health,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				c.work <- ctx
				select {} // work that does not end
			},
			OnStoppedLeading: func() { c.events <- "OnStoppedLeading" },
			OnNewLeader:      func(id string) { c.events <- "OnNewLeader " + id },
		},
	})
	if err != nil {
		panic(err)
	}
	c.health.SetLeaderElection(c.LeaderElector)
	return c
}

func main() {
	for _, d := range [][3]time.Duration{{2, 2, 1}, {3, 2, 2}} {
		_, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &lock{}, LeaseDuration: d[0] * time.Second, RenewDeadline: d[1] * time.Second, RetryPeriod: d[2] * time.Second,
		})
		fmt.Println("durations:", err)
	}
	for _, l := range []resourcelock.Interface{&resourcelock.LeaseLock{}, &resourcelock.MultiLock{}} {
		fmt.Printf("locks: %T\n", l)
	}
	shared := &lease{}
	ctx, cancel := context.WithCancel(context.Background())
	a := join(shared, "a")
	ended := make(chan struct{})
	go func() { a.Run(ctx); close(ended) }()
	work := <-a.work
	fmt.Println("started: IsLeader, and GetLeader:", a.IsLeader(), a.GetLeader())
	fmt.Println("new leader:", <-a.events)
	b := join(shared, "b")
	forB, cancelB := context.WithCancel(context.Background())
	endedB := make(chan struct{})
	go func() { b.Run(forB); close(endedB) }()
	fmt.Println("new leader: at a candidate:", <-b.events)
	cancel()
	<-ended
	shared.mu.Lock()
	fmt.Printf("release: Run returns while the work goes on (its ctx: %v), and the lease has the holder %q\n", work.Err(), shared.record.HolderIdentity)
	shared.mu.Unlock()
	fmt.Println("stopped:", <-a.events)

	work = <-b.work
	for event := range b.events {
		if event == "OnNewLeader b" {
			break
		}
	}
	shared.mu.Lock()
	shared.away = true
	shared.mu.Unlock()
	<-endedB
	fmt.Println("loss: Run returns though its ctx goes on:", forB.Err() == nil, work.Err(), <-b.events)
	time.Sleep(1100 * time.Millisecond)
	fmt.Println("health: without a renewal for LeaseDuration and the timeout, Check fails:", b.health.Check(nil) != nil)
	cancelB()
}
END
recorded "$(timeout 60 "$program" 2>/dev/null)" <<'END'
durations: leaseDuration must be greater than renewDeadline
durations: renewDeadline must be greater than retryPeriod*JitterFactor
locks: *resourcelock.LeaseLock
locks: *resourcelock.MultiLock
started: IsLeader, and GetLeader: true a
new leader: OnNewLeader a
new leader: at a candidate: OnNewLeader a
release: Run returns while the work goes on (its ctx: context canceled), and the lease has the holder ""
stopped: OnStoppedLeading
loss: Run returns though its ctx goes on: true context canceled OnStoppedLeading
health: without a renewal for LeaseDuration and the timeout, Check fails: true
END
