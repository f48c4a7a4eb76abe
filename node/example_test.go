package node_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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

// The node asks for the password for each new connection, and again before it expires.
func ExampleWithCredentials() {
	here, server := inProcess()
	defer server.Close()
	server.Redis.RequireUserAuth("billing", "s3cret")

	n, err := node.Dial("redis://10.0.0.1:6379", here, node.WithCredentials(func(context.Context) (node.Credentials, error) {
		return node.Credentials{User: "billing", Password: "s3cret", Expires: time.Now().Add(12 * time.Hour)}, nil
	}))
	exitOn(err)
	defer n.Close() //nolint:errcheck // the example ends here

	err = quorumlock.Do(context.Background(), n.Mutex("x"), func(context.Context) error {
		fmt.Println("locked")
		return nil
	})
	fmt.Println(err)
	// Output:
	// locked
	// <nil>
}

func ExampleNew() {
	_, server := inProcess()
	defer server.Close()

	// The client that the program has already; it may be one of a sentinel group or a cluster, too.
	client := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Dialer: server.DialContext})
	defer client.Close() //nolint:errcheck // the example ends here

	n, err := node.New(client)
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

// The owner is in the lock twice, and so it has to release twice.
func ExampleNode_Acquire() {
	here, server := inProcess()
	defer server.Close()
	n, err := node.Dial("redis://10.0.0.1:6379", here)
	exitOn(err)
	defer n.Close() //nolint:errcheck // the example ends here

	ctx, owner := context.Background(), quorumlock.NewOwner()
	for hold := 1; hold <= 2; hold++ {
		answer, err := n.Acquire(ctx, "thumbnails", owner, 30*time.Second, hold)
		fmt.Println(answer.Granted, err)
	}
	other, err := n.Acquire(ctx, "thumbnails", quorumlock.NewOwner(), 30*time.Second, 1)
	fmt.Println(other.Granted, other.Holder == owner, err)

	renewed, err := n.Renew(ctx, "thumbnails", owner, 30*time.Second)
	fmt.Println(renewed, err)
	for hold := 2; hold >= 1; hold-- {
		fmt.Println(n.Release(ctx, "thumbnails", owner, hold))
	}
	// Output:
	// true <nil>
	// true <nil>
	// false true <nil>
	// true <nil>
	// 1 <nil>
	// 0 <nil>
}

// An operator frees a lock by hand: the holder learns of its loss when it next renews.
func ExampleNode_ForceUnlock() {
	here, server := inProcess()
	defer server.Close()
	n, err := node.Dial("redis://10.0.0.1:6379", here)
	exitOn(err)
	defer n.Close() //nolint:errcheck // the example ends here

	ctx := context.Background()
	m := n.Mutex("x", quorumlock.WithTTL(time.Second))
	lease, err := m.Lock(ctx)
	exitOn(err)

	exitOn(n.ForceUnlock(ctx, "x"))
	<-lease.Context().Done()
	fmt.Println("lost:", errors.Is(context.Cause(lease.Context()), quorumlock.ErrLost))
	fmt.Println(errors.Is(lease.Unlock(ctx), quorumlock.ErrLost))
	// Output:
	// lost: true
	// true
}

// A node on its own has locks, for users of one Redis.
func ExampleNode() {
	here, server := inProcess()
	defer server.Close()
	n, err := node.Dial("redis://10.0.0.1:6379", here)
	exitOn(err)
	defer n.Close() //nolint:errcheck // the example ends here

	ctx := context.Background()
	lease, err := n.Mutex("myapp:lock:invoice:1042").Lock(ctx)
	exitOn(err)
	fmt.Println("held at", n)

	_, err = n.Mutex("myapp:lock:invoice:1042").TryLock(ctx)
	fmt.Println("somebody else:", errors.Is(err, quorumlock.ErrHeld))
	fmt.Println(lease.Unlock(ctx))
	// Output:
	// held at 10.0.0.1:6379
	// somebody else: true
	// <nil>
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
	tunnel := func(ctx context.Context, network, addr string) (net.Conn, error) {
		fmt.Println("through the tunnel to", addr)
		return server.DialContext(ctx, network, addr)
	}
	n, err := node.Dial("redis://10.0.0.1:6379", node.WithDialer(tunnel))
	exitOn(err)
	defer n.Close() //nolint:errcheck // the example ends here

	s, err := n.Inspect(context.Background(), "x")
	fmt.Println("held:", s.Held(), err)
	// The second connection only tells whether the address leads to several servers.

	// Output:
	// through the tunnel to 10.0.0.1:6379
	// through the tunnel to 10.0.0.1:6379
	// held: false <nil>
}

// A server that wants TLS and a client certificate.
func ExampleWithTLSConfig() {
	var authorities *x509.CertPool  // of your certificate authority
	var certificate tls.Certificate // of tls.LoadX509KeyPair
	n, err := node.Dial("rediss://10.0.0.1:6379", node.WithTLSConfig(&tls.Config{
		RootCAs: authorities, Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12,
	}))
	exitOn(err)
	fmt.Println(n)
	exitOn(n.Close())
	// Output: 10.0.0.1:6379
}

func ExampleNode_Status() {
	here, server := inProcess()
	defer server.Close()
	n, err := node.Dial("redis://10.0.0.1:6379", here)
	exitOn(err)
	defer n.Close() //nolint:errcheck // the example ends here

	s, err := n.Status(context.Background())
	exitOn(err)
	fmt.Println(s.Role, "keys are never dropped:", s.Eviction == "noeviction")
	// Output: master keys are never dropped: true
}
