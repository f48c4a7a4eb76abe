#!/usr/bin/env bash
# etcd: an election that ResumeElection makes with the prefix of NewElection also shows the leaders of longer prefixes.
#
# Expected: NewElection(session, "/leader") and ResumeElection(session, "/leader", key, rev) are the same election.
# Seen:     NewElection adds a slash to its prefix, ResumeElection does not. So Leader and Observe of the resumed election return
#           the oldest key below "/leader", such as the leader of "/leader2", and its Campaign waits for that leader, too.
# Package:  go.etcd.io/etcd/client/v3 v3.7.3, Debian's etcd-server and etcd-client 3.4.23
# Date:     2026-11-29
. "$(dirname "$0")/lib.bash"
client=$(port)
etcd_server "$client" "$(port)"
program go.etcd.io/etcd/client/v3@v3.7.3 <<'END'
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

func main() {
	ctx := context.Background()
	client, err := clientv3.New(clientv3.Config{Endpoints: os.Args[1:], Logger: zap.NewNop()})
	check(err)
	session := func() *concurrency.Session {
		s, err := concurrency.NewSession(client)
		check(err)
		return s
	}
	check(concurrency.NewElection(session(), "/leader2").Campaign(ctx, "leader of /leader2"))
	own := session()
	e := concurrency.NewElection(own, "/leader")
	check(e.Campaign(ctx, "leader of /leader"))
	resumed := concurrency.ResumeElection(own, "/leader", e.Key(), e.Rev())
	show(ctx, "NewElection", e)
	show(ctx, "ResumeElection", resumed)
	check(e.Resign(ctx))
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	fmt.Println("ResumeElection: Campaign for the free leadership:", resumed.Campaign(short, "leader of /leader"))
}

func show(ctx context.Context, name string, e *concurrency.Election) {
	leader, err := e.Leader(ctx)
	check(err)
	fmt.Printf("%s: %s\n", name, leader.Kvs[0].Value)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
END
recorded "$(timeout 60 "$program" "127.0.0.1:$client" 2>&1)" <<'END'
NewElection: leader of /leader
ResumeElection: leader of /leader2
ResumeElection: Campaign for the free leadership: context deadline exceeded
END
