package quorumlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

func ExampleDo() {
	client, nodes := connect() // redlock.New over five nodes
	defer nodes.Close()

	ctx := context.Background()
	err := quorumlock.Do(ctx, client.Mutex("myapp:lock:invoice:1042"), func(ctx context.Context) error {
		fmt.Println("charging the card, alone in the whole fleet")
		return ctx.Err() // ctx is cancelled if the lease is lost
	})
	fmt.Println("error:", err)
	// Output:
	// charging the card, alone in the whole fleet
	// error: <nil>
}

func ExampleLeaseOf() {
	client, nodes := connect()
	defer nodes.Close()

	ctx := context.Background()
	exitOn(quorumlock.Do(ctx, client.Mutex("myapp:lock:invoice:1042"), func(ctx context.Context) error {
		lease, _ := quorumlock.LeaseOf(ctx)
		fmt.Println(lease.Name(), "has a fencing token:", lease.Token() > 0)
		return nil
	}))
	// Output: myapp:lock:invoice:1042 has a fencing token: true
}

// A Shutdown waits for the function to return, so an endless function must watch Stopping.
func ExampleStopping() {
	client, nodes := connect()
	defer nodes.Close()

	ctx, began := context.Background(), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		ended <- quorumlock.Do(ctx, client.Mutex("myapp:lock:compaction"), func(ctx context.Context) error {
			close(began)
			select {
			case <-quorumlock.Stopping(ctx):
				return nil
			case <-ctx.Done(): // the lock is lost
				return context.Cause(ctx)
			}
		})
	}()
	<-began
	fmt.Println(client.Shutdown(ctx), <-ended)
	// Output: <nil> <nil>
}

func ExampleLocker() {
	client, nodes := connect()
	defer nodes.Close()

	// Code with a Locker works for a lock of one node, a RedLock and a MultiLock.
	nightly := func(ctx context.Context, lock quorumlock.Locker) error {
		lease, err := lock.TryLock(ctx)
		if errors.Is(err, quorumlock.ErrHeld) {
			fmt.Println("another host is at it")
			return nil
		}
		if err != nil {
			return err
		}
		defer lease.Unlock(ctx) //nolint:errcheck // a lease that was lost is none of this job's business

		fmt.Println("running", lease.Name())
		return nil
	}

	ctx := context.Background()
	lock := client.Mutex("nightly-report")
	fmt.Println(nightly(ctx, lock))

	elsewhere, err := lock.Lock(ctx)
	exitOn(err)
	fmt.Println(nightly(ctx, lock))
	fmt.Println(elsewhere.Unlock(ctx))
	// Output:
	// running nightly-report
	// <nil>
	// another host is at it
	// <nil>
	// <nil>
}

func ExampleLease() {
	client, nodes := connect()
	defer nodes.Close()

	ctx := context.Background()
	lock := client.Mutex("stock:17")

	// The store remembers the highest token and refuses a write with a lower one, so a holder that
	// was paused for too long does no harm when it wakes.
	var highest uint64
	write := func(token uint64, what string) {
		if token < highest {
			fmt.Println("refused:", what)
			return
		}
		highest = token
		fmt.Println("written:", what)
	}

	first, err := lock.Lock(ctx)
	exitOn(err)
	write(first.Token(), "19 left")
	exitOn(first.Unlock(ctx))

	second, err := lock.Lock(ctx)
	exitOn(err)
	write(second.Token(), "18 left")
	write(first.Token(), "17 left")
	exitOn(second.Unlock(ctx))
	fmt.Println(second.Unlock(ctx))
	// Output:
	// written: 19 left
	// written: 18 left
	// refused: 17 left
	// quorumlock: lease not held: the lease of the lock "stock:17" was unlocked or detached before
}

func ExampleLease_Context() {
	client, nodes := connect()
	defer nodes.Close()

	// A short TTL, to see its end soon.
	lease, err := client.Mutex("leader", quorumlock.WithTTL(200*time.Millisecond), quorumlock.WithNodeTimeout(50*time.Millisecond)).Lock(context.Background())
	exitOn(err)
	defer lease.Unlock(context.Background()) //nolint:errcheck // it is lost

	nodes.Kill(1, 3) // three of five are dead: no renewal and no acquisition

	<-lease.Context().Done() // by the deadline of the lease
	if lost, ok := errors.AsType[*quorumlock.LostError](context.Cause(lease.Context())); ok {
		fmt.Println("lost:", lost.Name) // lost.Reason has the reason
	}
	// Output:
	// lost: leader
}

func ExampleLease_Context_reentrancy() {
	client, nodes := connect()
	defer nodes.Close()

	lock := client.Mutex("account:1")
	outer, err := lock.Lock(context.Background())
	exitOn(err)

	// A context that descends from the lease's enters the same hold; any other would have to wait.
	inner, err := lock.Lock(outer.Context())
	exitOn(err)
	fmt.Println("entered", inner.HoldCount(), "times, same token:", inner.Token() == outer.Token())

	exitOn(inner.Unlock(context.Background()))
	fmt.Println("still held:", outer.Context().Err() == nil)
	exitOn(outer.Unlock(context.Background()))
	// Output:
	// entered 2 times, same token: true
	// still held: true
}

func ExampleNodeError() {
	client, nodes := connect()
	defer nodes.Close()
	nodes.Kill(2, 4)

	_, err := client.Mutex("x").TryLock(context.Background())
	var failed *quorumlock.NodeError
	if errors.As(err, &failed) {
		fmt.Println("one of the nodes to look at is", failed.Node)
	}
	// Output:
	// one of the nodes to look at is node-2
}

func ExampleQuorumError() {
	client, nodes := connect()
	defer nodes.Close()
	nodes.Kill(1, 5)

	_, err := client.Mutex("x").TryLock(context.Background())
	if e, ok := errors.AsType[*quorumlock.QuorumError](err); ok {
		fmt.Printf("%d of the %d nodes needed\n", e.Granted, e.Needed)
		fmt.Println("held by somebody:", errors.Is(err, quorumlock.ErrHeld))
	}
	// Output:
	// 0 of the 3 nodes needed
	// held by somebody: false
}

func ExampleDrift() {
	// Hosts without time synchronisation: allow for clocks that differ by 5 %.
	wide := quorumlock.Drift{Rate: 0.05, Floor: 10 * time.Millisecond}

	client, nodes := connect()
	defer nodes.Close()
	lease, err := client.Mutex("x", quorumlock.WithTTL(time.Minute), quorumlock.WithDrift(wide)).Lock(context.Background())
	exitOn(err)
	defer lease.Unlock(context.Background()) //nolint:errcheck // the example ends here

	fmt.Println("within 57 s:", time.Until(lease.ValidUntil()) < 57*time.Second)
	// Output:
	// within 57 s: true
}

func ExampleDrift_Validity() {
	d := quorumlock.DefaultDrift() // 1 % + 2 ms
	fmt.Println(d.Validity(10*time.Second, 398*time.Millisecond))
	fmt.Println(d.Validity(10*time.Second, 11*time.Second) > 0)
	// Output:
	// 9.5s
	// false
}

func ExampleOption() {
	client, nodes := connect()
	defer nodes.Close()

	// Options given to a Mutex override those given to redlock.New.
	migration := client.Mutex("migration",
		quorumlock.WithTTL(30*time.Second),  // how long a dead holder blocks others
		quorumlock.WithWait(10*time.Second), // how long Lock waits
		quorumlock.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))),
	)
	fmt.Println(quorumlock.Do(context.Background(), migration, func(context.Context) error { return nil }))

	// Invalid options are refused before any request.
	_, err := client.Mutex("migration", quorumlock.WithTTL(time.Millisecond)).TryLock(context.Background())
	fmt.Println(err)
	// Output:
	// <nil>
	// quorumlock: WithTTL(1ms) is too short: use at least 10ms
}

func ExampleOwner() {
	client, nodes := connect()
	defer nodes.Close()

	// Two calls without a common context, but with one owner: such as the steps of a job on one
	// host.
	job := quorumlock.NewOwner()
	lock := client.Mutex("job:7", quorumlock.WithOwner(job))

	first, err := lock.TryLock(context.Background())
	exitOn(err)
	second, err := lock.TryLock(context.Background())
	exitOn(err)
	fmt.Println("entered", second.HoldCount(), "times")

	_, err = client.Mutex("job:7").TryLock(context.Background())
	fmt.Println("anybody else:", errors.Is(err, quorumlock.ErrHeld))
	exitOn(second.Unlock(context.Background()))
	exitOn(first.Unlock(context.Background()))
	// Output:
	// entered 2 times
	// anybody else: true
}

func ExampleState() {
	client, nodes := connect()
	defer nodes.Close()

	lock := client.Mutex("x")
	lease, err := lock.Lock(context.Background())
	exitOn(err)
	seen, err := client.Inspect(context.Background(), "x")
	exitOn(err)
	fmt.Println("held:", seen.State.Held(), "by the lease's owner:", seen.State.Owner == lease.Owner())
	fmt.Println("hold count:", seen.State.HoldCount, "for up to 10 s:", seen.State.TTL <= 10*time.Second)

	exitOn(lease.Unlock(context.Background()))
	// Output:
	// held: true by the lease's owner: true
	// hold count: 1 for up to 10 s: true
}

// connect is testkit.Connect with five nodes, some of which nodes.Kill cuts off.
func connect(opts ...quorumlock.Option) (*redlock.Client, nodes) {
	client, servers, stop := testkit.Connect(5, opts...)
	return client, nodes{servers, stop}
}

type nodes struct {
	servers []*embedded.Server
	Close   func()
}

func (n nodes) Kill(first, last int) {
	for _, s := range n.servers[first-1 : last] {
		s.Kill()
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
