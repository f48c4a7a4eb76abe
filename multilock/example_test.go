package multilock_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/redlock"
)

// connect replaces redlock.Dial(urls), which a program calls once, at its start: three servers in
// the process.
func connect() (client *redlock.Client, disconnect func()) {
	client, _, disconnect = testkit.Connect(3)
	return client, disconnect
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A transfer takes both accounts or none, in whatever order others name them.
func ExampleMutex() {
	client, disconnect := connect()
	defer disconnect()

	both, err := multilock.New([]quorumlock.Locker{client.Mutex("myapp:lock:account:1"), client.Mutex("myapp:lock:account:2")})
	exitOn(err)

	ctx := context.Background()
	err = quorumlock.Do(ctx, both, func(ctx context.Context) error {
		fmt.Println("transferring under", both.Name())
		_, err := client.Mutex("myapp:lock:account:2").TryLock(context.Background())
		fmt.Println("account:2 alone is held:", errors.Is(err, quorumlock.ErrHeld))
		return nil
	})
	fmt.Println(err)
	// Output:
	// transferring under myapp:lock:account:1 + myapp:lock:account:2
	// account:2 alone is held: true
	// <nil>
}

func ExampleNew() {
	client, disconnect := connect()
	defer disconnect()

	// A MultiLock may be a member of another one; a lock may not be in it twice.
	ab, err := multilock.New([]quorumlock.Locker{client.Mutex("a"), client.Mutex("b")})
	exitOn(err)
	abc, err := multilock.New([]quorumlock.Locker{ab, client.Mutex("c")})
	fmt.Println(abc.Name(), err)

	_, err = multilock.New([]quorumlock.Locker{ab, client.Mutex("b")})
	fmt.Println(err)
	// Output:
	// a + b + c <nil>
	// quorumlock: member 2 ("b") needs "b" at node node-1, as an earlier member does: use each lock once
}

// Read the rates, write the account, and have one of two connections, all in one call.
func ExampleNew_mixedKinds() {
	client, disconnect := connect()
	defer disconnect()

	job, err := multilock.New([]quorumlock.Locker{
		client.RWMutex("rates").RLocker(), client.RWMutex("account:1"), client.Semaphore("connections", 2),
	})
	exitOn(err)
	ctx := context.Background()
	err = quorumlock.Do(ctx, job, func(context.Context) error {
		_, err := client.RWMutex("rates").RLocker().TryLock(ctx)
		fmt.Println("others read the rates:", err == nil)
		_, err = client.RWMutex("rates").TryLock(ctx)
		fmt.Println("nobody writes them:", errors.Is(err, quorumlock.ErrHeld))
		_, err = client.RWMutex("account:1").RLocker().TryLock(ctx)
		fmt.Println("nobody reads the account:", errors.Is(err, quorumlock.ErrHeld))
		_, err = client.Semaphore("connections", 2).TryLock(ctx)
		fmt.Println("the other connection is free:", err == nil)
		return nil
	})
	fmt.Println(err)
	// Output:
	// others read the rates: true
	// nobody writes them: true
	// nobody reads the account: true
	// the other connection is free: true
	// <nil>
}
