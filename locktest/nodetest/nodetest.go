// Package nodetest starts lock nodes inside a test, with the library's real scripts and a network
// that the test can break. It is for tests of a program's behaviour when nodes fail; package
// locktest is enough for other tests.
//
// It works inside a testing/synctest bubble, where waiting for a TTL takes no time.
package nodetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// Nodes has lock nodes inside the process. They are numbered from 1. A method with numbers acts on
// all nodes if it gets none, and fails the test for a number without a node. It is safe for
// concurrent use; its zero value is not usable.
type Nodes struct {
	t       testing.TB
	servers []*embedded.Server
	client  *redlock.Client
}

// Start starts n nodes and a client over them, all of which end with the test. opts are the
// client's. It fails the test if n or an option is invalid. It turns off go-redis's log for the
// whole process, which would have every failed connection.
func Start(t testing.TB, n int, opts ...quorumlock.Option) *Nodes {
	t.Helper()
	if n < 1 || n > 100 {
		t.Fatalf("nodetest: Start of %d nodes: use 1 to 100", n)
	}
	redis.SetLogger(silent{})
	nodes := &Nodes{t: t}
	t.Cleanup(func() {
		for _, s := range nodes.servers {
			s.Close()
		}
		if inBubble() {
			// go-redis checks once a second whether a dead node's pool is closed.
			time.Sleep(2 * time.Second)
		}
	})
	for i := range n {
		nodes.servers = append(nodes.servers, embedded.Start(fmt.Sprintf("node-%d", i+1)))
	}
	nodes.client = nodes.NewClient(opts...)
	return nodes
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// inBubble reports whether the clock is that of a testing/synctest bubble, which starts in 2000.
func inBubble() bool { return time.Now().Year() < 2020 }

// Client returns the client that Start made.
func (n *Nodes) Client() *redlock.Client { return n.client }

// NewClient returns another client over the same nodes, as another process has one. The end of the
// test closes it. It fails the test if an option is invalid.
func (n *Nodes) NewClient(opts ...quorumlock.Option) *redlock.Client {
	n.t.Helper()
	nodes := make([]*node.Node, len(n.servers))
	for i, s := range n.servers {
		var err error
		if nodes[i], err = s.Node(); err != nil {
			n.t.Fatal(err)
		}
	}
	client, err := redlock.New(nodes, opts...)
	if err != nil {
		for _, node := range nodes {
			_ = node.Close()
		}
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = client.Close() }) // a node that the test has killed is no failure
	return client
}

// Node returns another connection to the first node, for locks on it. The end of the test closes
// it.
func (n *Nodes) Node() *node.Node {
	n.t.Helper()
	one, err := n.servers[0].Node()
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = one.Close() })
	return one
}

// Kill cuts all connections to the nodes, and refuses new ones until Restart. The data stays.
func (n *Nodes) Kill(numbers ...int) { n.each(numbers, (*embedded.Server).Kill) }

// Restart starts nodes again, with their data. It kills running nodes first.
func (n *Nodes) Restart(numbers ...int) {
	n.each(numbers, func(s *embedded.Server) { s.Restart(true) })
}

// Forget restarts nodes without their data, like a server that keeps nothing on disk.
func (n *Nodes) Forget(numbers ...int) {
	n.each(numbers, func(s *embedded.Server) { s.Restart(false) })
}

// Freeze holds back all requests to the nodes until Thaw. Then they run, late.
func (n *Nodes) Freeze(numbers ...int) { n.each(numbers, (*embedded.Server).Stall) }

// Cut drops all requests to the nodes, without an error to the client, until Thaw.
func (n *Nodes) Cut(numbers ...int) { n.each(numbers, (*embedded.Server).Lose) }

// Mute lets requests to the nodes run and holds back the replies, until Thaw.
func (n *Nodes) Mute(numbers ...int) { n.each(numbers, (*embedded.Server).Mute) }

// Thaw ends Freeze, Cut and Mute.
func (n *Nodes) Thaw(numbers ...int) { n.each(numbers, (*embedded.Server).Resume) }

// Delay delays each request to the nodes by d, and each reply. 0 ends the delay.
func (n *Nodes) Delay(d time.Duration, numbers ...int) {
	n.each(numbers, func(s *embedded.Server) { s.Delay(d) })
}

// each calls do for the numbered nodes, or for all nodes without numbers.
func (n *Nodes) each(numbers []int, do func(*embedded.Server)) {
	n.t.Helper()
	if len(numbers) == 0 {
		for i := range n.servers {
			numbers = append(numbers, i+1)
		}
	}
	for _, number := range numbers {
		if number < 1 || number > len(n.servers) {
			n.t.Errorf("nodetest: there is no node %d: use 1 to %d", number, len(n.servers))
			continue
		}
		do(n.servers[number-1])
	}
}
