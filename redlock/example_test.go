package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// dialAll stands in for node.Dial("redis://10.0.0.1:6379") and so on: five servers in the process.
func dialAll() ([]*node.Node, []*embedded.Server) {
	servers, nodes, err := embedded.Nodes(5)
	exitOn(err)
	return nodes, servers
}

// connect stands in for redlock.Dial(urls): a client of five servers in the process.
func connect() (client *redlock.Client, stop func()) {
	client, _, stop = testkit.Connect(5)
	return client, stop
}

// threeServers starts servers that listen on the machine, and returns their URLs.
func threeServers() (urls []string, stop func()) {
	servers := make([]*miniredis.Miniredis, 3)
	for i := range servers {
		var err error
		servers[i], err = miniredis.Run()
		exitOn(err)
		urls = append(urls, "redis://"+servers[i].Addr())
	}
	return urls, func() {
		for _, s := range servers {
			s.Close()
		}
	}
}

func closeAll(servers []*embedded.Server) {
	for _, s := range servers {
		s.Close()
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func Example() {
	nodes, servers := dialAll() // node.Dial, five times
	defer closeAll(servers)

	client, err := redlock.New(nodes, quorumlock.WithTTL(15*time.Second))
	exitOn(err)
	defer client.Close() //nolint:errcheck // the example ends here

	ctx := context.Background()
	lease, err := client.Mutex("myapp:lock:invoice:1042").Lock(ctx)
	exitOn(err)
	defer lease.Unlock(ctx) //nolint:errcheck // the keys are gone at their TTL

	fmt.Println("charging, under", lease.Name())
	// Output:
	// charging, under myapp:lock:invoice:1042
}

func ExampleDial() {
	urls, stop := threeServers() // redis://10.0.0.1:6379 and so on
	defer stop()

	client, err := redlock.Dial(urls, quorumlock.WithTTL(30*time.Second), redlock.WithNodeOptions(node.WithTimeout(5*time.Second)))
	exitOn(err)
	defer client.Close() //nolint:errcheck // the example ends here

	err = quorumlock.Do(context.Background(), client.Mutex("invoice:1042"), func(context.Context) error {
		fmt.Println("charging")
		return nil
	})
	fmt.Println(err)

	_, err = redlock.Dial([]string{"10.0.0.1:6379"})
	fmt.Println(err)
	// Output:
	// charging
	// <nil>
	// quorumlock: redlock.Dial: URL 1 of 1: quorumlock: node.Dial: the URL has no scheme: use redis://10.0.0.1:6379, or rediss:// for TLS
}

func ExampleDialEnv() {
	urls, stop := threeServers() // redis://10.0.0.1:6379 and so on
	defer stop()

	_, err := redlock.DialEnv()
	fmt.Println(errors.Is(err, quorumlock.ErrMisuse)) // the error names the variable to set

	exitOn(os.Setenv("QUORUMLOCK_NODES", strings.Join(urls, ",")))
	defer os.Unsetenv("QUORUMLOCK_NODES") //nolint:errcheck // the example ends here
	client, err := redlock.DialEnv(quorumlock.WithLabel("billing"))
	exitOn(err)
	defer client.Close() //nolint:errcheck // the example ends here
	lease, err := client.Mutex("invoice:1042").Lock(context.Background())
	exitOn(err)
	fmt.Println(lease.Owner().Label(), lease.Unlock(context.Background()))
	// Output:
	// true
	// billing <nil>
}

func ExampleClient() {
	nodes, servers := dialAll()
	defer closeAll(servers)
	client, err := redlock.New(nodes)
	exitOn(err)
	defer client.Close() //nolint:errcheck // the example ends here

	// Two of five nodes may be down.
	servers[0].Kill()
	servers[1].Kill()
	err = quorumlock.Do(context.Background(), client.Mutex("x"), func(context.Context) error {
		fmt.Println("locked")
		return nil
	})
	fmt.Println(err)

	// Invalid arguments are refused at once.
	_, err = redlock.New(nil)
	fmt.Println(err)
	_, err = redlock.New(nodes, quorumlock.WithQuorum(2))
	fmt.Println(err)
	// Output:
	// locked
	// <nil>
	// quorumlock: redlock.New: no nodes: give at least one, and three or five for a lock that survives failures
	// quorumlock: WithQuorum(2) cannot work over 5 nodes: use 3 to 5, or leave the option out for a majority
}

// A scheduler that asks for a lock by the name of the job.
func ExampleClient_Lockers() {
	client, stop := connect()
	defer stop()
	lockers := client.Lockers("jobs:")

	ctx := context.Background()
	lease, err := lockers("report").Lock(ctx)
	exitOn(err)
	fmt.Println(lease.Name(), lease.Unlock(ctx))
	// Output: jobs:report <nil>
}

func ExampleMutex() {
	client, stop := connect()
	defer stop()

	ctx := context.Background()
	lease, err := client.Mutex("leader").Lock(ctx)
	exitOn(err)

	// The watchdog does this by itself, while the process lives and a quorum of the nodes answers.
	before := lease.ValidUntil()
	exitOn(lease.Extend(ctx))
	fmt.Println("extended:", lease.ValidUntil().After(before))
	fmt.Println(lease.Unlock(ctx))
	// Output:
	// extended: true
	// <nil>
}

func ExampleClient_Watch() {
	client, stop := connect()
	defer stop()

	ctx := context.Background()
	lease, err := client.Mutex("x", quorumlock.WithData("job 17")).Lock(ctx)
	exitOn(err)
	for in, err := range client.Watch(ctx, "x") {
		exitOn(err)
		if !in.State.Held() {
			fmt.Println("free")
			break
		}
		fmt.Println("held by the lease's owner:", in.State.Owner == lease.Owner())
		exitOn(lease.Unlock(ctx))
	}
	// Output:
	// held by the lease's owner: true
	// free
}

func ExampleInspection() {
	client, stop := connect()
	defer stop()

	ctx := context.Background()
	lease, err := client.Mutex("x").Lock(ctx)
	exitOn(err)
	in, err := client.Inspect(ctx, "x")
	exitOn(err)
	fmt.Println("held by the lease's owner:", in.State.Owner == lease.Owner())
	exitOn(lease.Unlock(ctx))
	// Output:
	// held by the lease's owner: true
}

func ExampleNodeState() {
	client, servers, stop := testkit.Connect(5)
	defer stop()
	servers[3].Kill()

	in, err := client.Inspect(context.Background(), "x")
	exitOn(err)
	for _, n := range in.Nodes {
		if n.Err != nil {
			what, _, _ := strings.Cut(n.Err.Error(), ": dial")
			fmt.Println(n.Node, "failed:", what)
			continue
		}
		fmt.Println(n.Node, "held:", n.State.Held())
	}
	// Output:
	// node-1 held: false
	// node-2 held: false
	// node-3 held: false
	// node-4 failed: quorumlock: node node-4
	// node-5 held: false
}

func ExampleClient_Diagnose() {
	client, servers, stop := testkit.Connect(5)
	defer stop()
	servers[1].Configure("appendfsync", "everysec")
	servers[4].Configure("maxmemory", "1000000")
	servers[4].Configure("maxmemory-policy", "allkeys-lru")

	report, err := client.Diagnose(context.Background())
	exitOn(err) // too few nodes for the quorum
	fmt.Println("fit for locks:", report.OK())
	for _, f := range report.Findings {
		fmt.Println(f)
	}
	// Output:
	// fit for locks: false
	// failure: node-5: maxmemory is 1000000 bytes and maxmemory-policy allkeys-lru: keys can be dropped while they are held: set maxmemory-policy noeviction
	// warning: node-2: appendfsync is everysec: a restart can lose the latest locks: set appendonly yes and appendfsync always, or use WithRestartGuard
}

func ExampleClient_Ready() {
	client, servers, stop := testkit.Connect(5)
	defer stop()

	for _, s := range servers[:3] {
		r, err := client.Ready(context.Background())
		fmt.Println(r.Quorum+r.MayFail(), "of", len(r.Nodes), "nodes are ready,", r.MayFail(), "more may fail, healthy:", err == nil)
		s.Kill()
	}
	r, err := client.Ready(context.Background())
	fmt.Println(r.Quorum+r.MayFail(), "of", len(r.Nodes), "nodes are ready,", -r.MayFail(), "missing, healthy:", err == nil)
	// Output:
	// 5 of 5 nodes are ready, 2 more may fail, healthy: true
	// 4 of 5 nodes are ready, 1 more may fail, healthy: true
	// 3 of 5 nodes are ready, 0 more may fail, healthy: true
	// 2 of 5 nodes are ready, 1 missing, healthy: false
}
