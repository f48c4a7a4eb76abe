package names

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/node"
)

func TestLockNamesAreTakenAsTheyAre(t *testing.T) {
	names := []string{
		"{x}", "x", "a{b}c", "{", "}", "}{", "{}", "two words", " ", "\t\n", "schloß/замок/锁🔒", "\xff\xfe\x00",
		"my_redisson_lock_token:{x}y", "%s%d", "*", "a:b", strings.Repeat("k", 1024), strings.Repeat("é", 512),
	}
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		other, _ := locktest.Another(t, servers)
		leases := make([]*quorumlock.Lease, len(names))
		for i, name := range names {
			leases[i] = locktest.TryLock(t, c.Mutex(name)) // no name is in the way of another
			if leases[i].Name() != name {
				t.Errorf("the lease of %q is named %q", name, leases[i].Name())
			}
		}
		for i, name := range names {
			locktest.Refused(t, other.Mutex(name))
			locktest.HoldsAll(t, servers, leases[i])
			got := make(chan *quorumlock.Lease)
			go func() {
				l, err := other.Mutex(name).Lock(t.Context())
				if err != nil {
					t.Errorf("Lock of %q: %v", name, err)
				}
				got <- l
			}()
			time.Sleep(100 * time.Millisecond)
			began := time.Now()
			if err := leases[i].Unlock(t.Context()); err != nil {
				t.Errorf("Unlock of %q: %v", name, err)
			}
			next := <-got
			if took := time.Since(began); took > 10*time.Millisecond {
				t.Errorf("the waiter for %q was woken after %v", name, took)
			}
			if next.Token() <= leases[i].Token() {
				t.Errorf("token %d after %d", next.Token(), leases[i].Token())
			}
			locktest.Unlock(t, next)
		}
		locktest.NoLocks(t, servers)
	})
}

// The keys of such a lock would be at several servers of the cluster, which refuses scripts then.
func TestANameThatAClusterCannotKeepTogetherIsAnError(t *testing.T) {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"h:1"}})
	t.Cleanup(func() { _ = client.Close() })
	n := node.New(client)
	c := locktest.Of(t, []*node.Node{n})
	for _, name := range []string{"a}b", "a{b", "{}x", "}", "x{}{y}"} {
		told := func(where string, err error) {
			t.Helper()
			if err == nil || !strings.Contains(err.Error(), "makes no hash tag") || !strings.Contains(err.Error(), "cluster h:1") {
				t.Fatalf("%s of %q: %v", where, name, err)
			}
		}
		_, err := c.Mutex(name).TryLock(t.Context())
		told("TryLock", err)
		_, err = c.Mutex(name).Lock(t.Context())
		told("Lock", err)
		_, err = c.Inspect(t.Context(), name)
		told("Inspect", err)
		told("ForceUnlock", c.Mutex(name).ForceUnlock(t.Context()))
		_, err = n.Mutex(name).TryLock(t.Context())
		told("a node's TryLock", err)
		_, err = n.Acquire(t.Context(), name, quorumlock.NewOwner(), time.Second, 1)
		told("Acquire", err)
		_, err = transport.Of(n).Inspect(t.Context(), name)
		told("a node's Inspect", err)
		_, err = multilock.New([]quorumlock.Locker{n.Mutex(name)})
		told("multilock.New", err)
	}
	if err := transport.Of(n).CheckName("{billing}:7"); err != nil {
		t.Errorf("CheckName of a name with a tag: %v", err)
	}
	if single, _ := node.Dial("redis://h"); transport.Of(single).CheckName("a}b") != nil {
		t.Error("a single server refuses a name with a brace")
	}
}
