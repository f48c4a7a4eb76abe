#!/usr/bin/env bash
# What docs/coming-from.md and docs/election.md say about the concurrency package and the recipes of etcd.
#
# Package: go.etcd.io/etcd/client/v3 v3.7.3, Debian's etcd-server and etcd-client 3.4.23
# Date:    2026-11-29
. "$(dirname "$0")/../../findings/lib.bash"
client=$(port)
etcd_server "$client" "$(port)"
program go.etcd.io/etcd/client/v3@v3.7.3 <<'END'
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
	"go.uber.org/zap"
)

var ctx = context.Background()

func open() *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: os.Args[1:], Logger: zap.NewNop()})
	check(err)
	return c
}

func session(c *clientv3.Client) *concurrency.Session {
	s, err := concurrency.NewSession(c, concurrency.WithTTL(10))
	check(err)
	return s
}

// lost ends a session at the server, and waits until the client knows.
func lost(c *clientv3.Client, s *concurrency.Session) {
	_, err := c.Revoke(ctx, s.Lease())
	check(err)
	<-s.Done()
}

func main() {
	c := open()
	mutex(c)
	recipes(c)
	election(c)
}

func mutex(c *clientv3.Client) {
	one, other := session(c), session(c)
	left, err := c.TimeToLive(ctx, one.Lease())
	check(err)
	fmt.Println("session: seconds granted:", left.GrantedTTL)
	m := concurrency.NewMutex(one, "/job/")
	check(m.Lock(ctx))
	fmt.Println("held: another session's try returns ErrLocked:", errors.Is(concurrency.NewMutex(other, "/job/").TryLock(ctx), concurrency.ErrLocked))
	fmt.Println("again: a second Lock in the session returns", concurrency.NewMutex(one, "/job/").Lock(ctx))
	owner, err := c.Txn(ctx).If(m.IsOwner()).Commit()
	check(err)
	first := m.Header().GetRevision()
	done, cancel := context.WithCancel(ctx)
	cancel()
	err = m.Unlock(done)
	fmt.Printf("unlock: with a cancelled ctx, it fails (%t), and the lock is held: %t\n", err != nil,
		errors.Is(concurrency.NewMutex(other, "/job/").TryLock(ctx), concurrency.ErrLocked))
	waiting := concurrency.NewMutex(other, "/job/")
	granted := make(chan error)
	go func() { granted <- waiting.Lock(ctx) }()
	lost(c, one)
	fmt.Println("loss: Done is closed, and Unlock returns", m.Unlock(ctx))
	check(<-granted)
	fmt.Println("revision: that of the next holder is higher:", waiting.Header().GetRevision() > first)
	ended := concurrency.NewMutex(other, "/job/")
	check(waiting.Unlock(ctx))
	check(ended.Lock(ctx))
	lost(c, other)
	after, err := c.Txn(ctx).If(ended.IsOwner()).Commit()
	check(err)
	fmt.Println("owner: IsOwner in a transaction, while held and after the loss:", owner.Succeeded, after.Succeeded)

	closed := open()
	locker := concurrency.NewLocker(session(closed), "/locker/")
	locker.Lock()
	check(closed.Close())
	func() {
		defer func() { fmt.Println("locker: after the end of the client, Unlock panics:", recover() != nil) }()
		locker.Unlock()
	}()
}

func recipes(c *clientv3.Client) {
	fmt.Println("recipes:", methods(reflect.TypeFor[*recipe.RWMutex]()), "/", methods(reflect.TypeFor[*recipe.Barrier]()), "/", methods(reflect.TypeFor[*recipe.DoubleBarrier]()))
	one, other := recipe.NewRWMutex(session(c), "rw"), recipe.NewRWMutex(session(c), "rw")
	check(one.RLock())
	check(other.RLock())
	fmt.Println("readers: two share the lock")
	b := recipe.NewBarrier(c, "barrier")
	check(b.Hold())
	passed := make(chan error)
	go func() { passed <- recipe.NewBarrier(c, "barrier").Wait() }()
	check(b.Release())
	check(<-passed)
	fmt.Println("barrier: a release opens it; it can be held again:", b.Hold())
	entered := make(chan error)
	for range 2 {
		go func() { entered <- recipe.NewDoubleBarrier(session(c), "double", 2).Enter() }()
	}
	check(<-entered)
	check(<-entered)
	fmt.Println("double barrier: two enter together")
}

func election(c *clientv3.Client) {
	one := session(c)
	e := concurrency.NewElection(one, "/leader")
	_, err := e.Leader(ctx)
	fmt.Println("leader: without one, ErrElectionNoLeader:", errors.Is(err, concurrency.ErrElectionNoLeader))
	observing, stop := context.WithCancel(ctx)
	seen := e.Observe(observing)
	check(e.Campaign(ctx, "a"))
	fmt.Println("observe:", string((<-seen).Kvs[0].Value))
	check(e.Proclaim(ctx, "b"))
	fmt.Println("observe: after Proclaim", string((<-seen).Kvs[0].Value))
	leader, err := e.Leader(ctx)
	check(err)
	kv := leader.Kvs[0]
	fmt.Println("key and rev: those of the leader's key:", e.Key() == string(kv.Key), e.Rev() == kv.CreateRevision, e.Header() != nil)
	again := concurrency.NewElection(one, "/leader")
	fmt.Println("again: a second Campaign in the session returns", again.Campaign(ctx, "c"))
	fmt.Println("observe: after it", string((<-seen).Kvs[0].Value))
	resumed := concurrency.ResumeElection(one, "/leader/", e.Key(), e.Rev())
	fmt.Println("resume: Proclaim returns", resumed.Proclaim(ctx, "d"))
	<-seen
	other := concurrency.NewElection(session(c), "/leader")
	leads := make(chan error)
	go func() { leads <- other.Campaign(ctx, "e") }()
	check(e.Resign(ctx))
	check(<-leads)
	fmt.Println("resign: the next candidate leads:", string((<-seen).Kvs[0].Value))
	stop()
	for range seen {
	}
	fmt.Println("observe: its channel ends with ctx")

	two := session(c)
	l := concurrency.NewElection(two, "/lost")
	check(l.Campaign(ctx, "a"))
	lost(c, two)
	fmt.Println("loss: session.Done is closed, Proclaim returns ErrElectionNotLeader:", errors.Is(l.Proclaim(ctx, "b"), concurrency.ErrElectionNotLeader))
	fmt.Println("loss: Resign returns", l.Resign(ctx))
}

func methods(t reflect.Type) string {
	var names []string
	for i := range t.NumMethod() {
		names = append(names, t.Method(i).Name)
	}
	return strings.Join(names, " ")
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
END
recorded "$(timeout 60 "$program" "127.0.0.1:$client" 2>&1)" <<'END'
session: seconds granted: 10
held: another session's try returns ErrLocked: true
again: a second Lock in the session returns <nil>
unlock: with a cancelled ctx, it fails (true), and the lock is held: true
loss: Done is closed, and Unlock returns <nil>
revision: that of the next holder is higher: true
owner: IsOwner in a transaction, while held and after the loss: true false
locker: after the end of the client, Unlock panics: true
recipes: Lock RLock RUnlock Unlock / Hold Release Wait / Enter Leave
readers: two share the lock
barrier: a release opens it; it can be held again: <nil>
double barrier: two enter together
leader: without one, ErrElectionNoLeader: true
observe: a
observe: after Proclaim b
key and rev: those of the leader's key: true true true
again: a second Campaign in the session returns <nil>
observe: after it c
resume: Proclaim returns <nil>
resign: the next candidate leads: e
observe: its channel ends with ctx
loss: session.Done is closed, Proclaim returns ErrElectionNotLeader: true
loss: Resign returns etcdserver: key is not provided
END
