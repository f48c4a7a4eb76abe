package node_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/node"
)

func ExampleDial() {
	here, server := inProcess()
	defer server.Close()

	n, err := node.Dial("redis://billing:s3cret@10.0.0.1:6379/2", here)
	exitOn(err)
	defer n.Close() //nolint:errcheck // the example ends here
	fmt.Println(n)

	_, err = node.Dial("10.0.0.1:6379")
	fmt.Println(err != nil)
	// Output:
	// 10.0.0.1:6379/2
	// true
}

func ExampleNew() {
	_, server := inProcess()
	defer server.Close()

	// The client that the program has already; it may be one of a sentinel group or a cluster, too.
	client := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Dialer: server.DialContext})
	defer client.Close() //nolint:errcheck // the example ends here

	n := node.New(client)

	err := n.Err()
	exitOn(err)
	defer n.Close() //nolint:errcheck // it leaves the client open

	err = quorumlock.Do(context.Background(), n.Mutex("x"), func(context.Context) error {
		fmt.Println("locked")
		return nil
	})
	fmt.Println(err)
	// Output:
	// locked
	// <nil>
}

func ExampleMutex() {
	here, server := inProcess()
	defer server.Close()
	n, err := node.Dial("redis://10.0.0.1:6379", here)
	exitOn(err)
	defer n.Close() //nolint:errcheck // the example ends here

	ctx := context.Background()
	m := n.Mutex("thumbnails", quorumlock.WithTTL(30*time.Second))
	lease, err := m.TryLock(ctx)
	exitOn(err)

	_, err = n.Mutex("thumbnails").TryLock(ctx)
	fmt.Println("held by somebody else:", errors.Is(err, quorumlock.ErrHeld))

	fmt.Println(lease.Unlock(ctx))
	// Output:
	// held by somebody else: true
	// <nil>
}

// An operator frees a lock by hand: the holder learns of its loss when it next renews.
func ExampleMutex_ForceUnlock() {
	here, server := inProcess()
	defer server.Close()
	n, err := node.Dial("redis://10.0.0.1:6379", here)
	exitOn(err)
	defer n.Close() //nolint:errcheck // the example ends here

	ctx := context.Background()
	m := n.Mutex("x", quorumlock.WithTTL(time.Second))
	lease, err := m.Lock(ctx)
	exitOn(err)

	exitOn(m.ForceUnlock(ctx))
	<-lease.Context().Done()
	fmt.Println(context.Cause(lease.Context()))
	fmt.Println(errors.Is(lease.Unlock(ctx), quorumlock.ErrLost))
	// Output:
	// quorumlock: the lease of the lock "x" was lost: too many nodes no longer have its key
	// true
}

// The primitive of one node, for those who build locks of their own. Counts are absolute: the same
// call twice enters once.
func ExampleNode() {
	here, server := inProcess()
	defer server.Close()
	n, err := node.Dial("redis://10.0.0.1:6379", here)
	exitOn(err)
	defer n.Close() //nolint:errcheck // the example ends here

	ctx := context.Background()
	me, other := quorumlock.NewOwner(), quorumlock.NewOwner()
	for _, hold := range []int{1, 2, 2} {
		a, err := n.Acquire(ctx, "x", me, 10*time.Second, hold)
		exitOn(err)
		fmt.Println("granted:", a.Granted, "again:", a.Again)
	}
	a, err := n.Acquire(ctx, "x", other, 10*time.Second, 1)
	exitOn(err)
	fmt.Println("somebody else:", a.Granted)

	for _, hold := range []int{2, 1} {
		left, err := n.Release(ctx, "x", me, hold)
		fmt.Println("left:", left, err)
	}
	// Output:
	// granted: true again: false
	// granted: true again: true
	// granted: true again: true
	// somebody else: false
	// left: 1 <nil>
	// left: 0 <nil>
}

func ExampleOption() {
	here, server := inProcess()
	defer server.Close()
	n, err := node.Dial("redis://10.0.0.1:6379", here,
		node.WithName("cellar"), // in errors and logs, instead of the address
		node.WithTimeout(200*time.Millisecond),
	)
	exitOn(err)
	defer n.Close() //nolint:errcheck // the example ends here
	server.Kill()

	_, err = n.Inspect(context.Background(), "x")
	fmt.Println(strings.HasPrefix(err.Error(), "quorumlock: node cellar: "))
	// Output:
	// true
}

func ExampleDialer() {
	_, server := inProcess()
	defer server.Close()

	// Such as that of an SSH connection, golang.org/x/crypto/ssh.Client.DialContext.
	var tunnel node.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		fmt.Println("through the tunnel to", addr)
		return server.DialContext(ctx, network, addr)
	}
	n, err := node.Dial("redis://10.0.0.1:6379", node.WithDialer(tunnel))
	exitOn(err)
	defer n.Close() //nolint:errcheck // the example ends here

	s, err := n.Inspect(context.Background(), "x")
	fmt.Println("held:", s.Held(), err)
	// Output:
	// through the tunnel to 10.0.0.1:6379
	// held: false <nil>
}
