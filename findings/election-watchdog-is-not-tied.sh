#!/usr/bin/env bash
# client-go: the WatchDog of the configuration sees nothing if the elector is started by Run and not by RunOrDie.
#
# Expected: NewLeaderElector takes the whole configuration, so a health check with its WatchDog fails when a leader cannot renew.
# Seen:     only RunOrDie ties the two. With NewLeaderElector and Run, Check returns nil for ever, also after the lease is over.
# Package:  k8s.io/client-go v0.37.2 (the first build takes minutes)
# Date:     2026-11-29
. "$(dirname "$0")/lib.bash"
program k8s.io/client-go@v0.37.2 <<'END'
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lock lets its only candidate lead, and then refuses every renewal.
type lock struct{}

func (lock) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return nil, nil, apierrors.NewNotFound(schema.GroupResource{}, "lease")
}
func (lock) Create(_ context.Context, _ resourcelock.LeaderElectionRecord) error {
	if led {
		return errors.New("the server is away")
	}
	led = true
	return nil
}
func (lock) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	return errors.New("the server is away")
}
func (lock) RecordEvent(string) {}
func (lock) Identity() string   { return "a" }
func (lock) Describe() string   { return "lease" }

var led bool

func main() {
	for _, start := range []struct {
		name string
		run  func(leaderelection.LeaderElectionConfig)
	}{
		{"RunOrDie", func(config leaderelection.LeaderElectionConfig) {
			leaderelection.RunOrDie(context.Background(), config)
		}},
		{"Run", func(config leaderelection.LeaderElectionConfig) {
			elector, err := leaderelection.NewLeaderElector(config)
			if err != nil {
				panic(err)
			}
			elector.Run(context.Background())
		}},
	} {
		led = false
		health := leaderelection.NewLeaderHealthzAdaptor(0)
		start.run(leaderelection.LeaderElectionConfig{
			Lock: lock{}, WatchDog: health,
			LeaseDuration: time.Second, RenewDeadline: 800 * time.Millisecond, RetryPeriod: 200 * time.Millisecond,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) {}, OnStoppedLeading: func() {}},
		})
		time.Sleep(time.Second)
		fmt.Printf("%s: after the lease, the health check fails: %t\n", start.name, health.Check(nil) != nil)
	}
}
END
recorded "$(timeout 60 "$program" 2>/dev/null)" <<'END'
RunOrDie: after the lease, the health check fails: true
Run: after the lease, the health check fails: false
END
