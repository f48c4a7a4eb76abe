package names

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/redlock"
)

// keysOf are all keys that the lock of that key may have.
func keysOf(key string) []string {
	return []string{key, wire.TokenKey(key), wire.QueueKey(key), wire.EntriesKey(key)}
}

// onlyKeysOf checks that the servers have the lock's key, and no keys but the lock's.
func onlyKeysOf(t *testing.T, servers []*embedded.Server, keys ...string) {
	t.Helper()
	for _, s := range servers {
		for _, key := range keys {
			if !s.Redis.Exists(key) {
				t.Errorf("%s has no %q, but %q", s.Name, key, s.Redis.Keys())
			}
		}
		for _, have := range s.Redis.Keys() {
			if !slices.ContainsFunc(keys, func(key string) bool { return slices.Contains(keysOf(key), have) }) {
				t.Errorf("%s has %q, want only keys of %q", s.Name, have, keys)
			}
		}
	}
}

func TestWithPrefixPutsItBeforeEveryKey(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3, quorumlock.WithPrefix("app:"))
		other, _ := locktest.Another(t, servers, quorumlock.WithPrefix("app:"))
		holder := locktest.Lock(t, c.Mutex("x"))
		onlyKeysOf(t, servers, "app:x")
		got := locktest.Waiter(t, other.Mutex("x"))
		onlyKeysOf(t, servers, "app:x")
		in, err := other.Inspect(t.Context(), "x")
		if err != nil || in.State.Owner != holder.Owner() || len(in.State.Queue) != 1 {
			t.Errorf("Inspect: %+v, %v, want the holder and one who waits", in.State, err)
		}
		// Renewed, and refreshed; no refresh is under way.
		time.Sleep(time.Minute + 100*time.Millisecond)
		locktest.Held(t, holder)
		attempts := locktest.Ran(servers, "acquire")
		locktest.Unlock(t, holder)
		next := <-got
		if next == nil {
			t.FailNow()
		}
		if n := locktest.Ran(servers, "acquire") - attempts; n > 0 {
			t.Errorf("%d attempts after Unlock, want the lock handed over", n)
		}
		if next.Token() <= holder.Token() {
			t.Errorf("token %d after %d", next.Token(), holder.Token())
		}
		onlyKeysOf(t, servers, "app:x")
		if err := c.Mutex("x").ForceUnlock(t.Context()); err != nil {
			t.Errorf("ForceUnlock: %v", err)
		}
		locktest.Lost(t, next, quorumlock.DefaultTTL)
		_ = next.Unlock(t.Context()) // it is lost

		both := locktest.Multi(t, c.Mutex("x"), c.Mutex("y"))
		lease := locktest.Lock(t, both)
		onlyKeysOf(t, servers, "app:x", "app:y")
		locktest.Unlock(t, lease)
		locktest.NoLocks(t, servers)
	})
}

// A lock is its key: with or without a prefix, locks of the same key exclude each other, and no
// others.
func TestLocksWithAndWithoutAPrefixExcludeEachOtherByTheirKeys(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		plain, servers := locktest.Client(t, 3)
		app, _ := locktest.Another(t, servers, quorumlock.WithPrefix("app:"))
		deep, _ := locktest.Another(t, servers, quorumlock.WithPrefix("app:x:"))
		lease := locktest.Lock(t, app.Mutex("x:y"))
		locktest.Refused(t, plain.Mutex("app:x:y"))
		locktest.Refused(t, deep.Mutex("y"))
		_, nodes := locktest.Paths(t, servers[:1])
		locktest.Refused(t, nodes[0].Mutex("x:y", quorumlock.WithPrefix("app:")))
		for _, free := range []quorumlock.Locker{plain.Mutex("x:y"), app.Mutex("y"), deep.Mutex("x:y")} {
			locktest.Unlock(t, locktest.TryLock(t, free))
		}
		got := locktest.Waiter(t, deep.Mutex("y"))
		locktest.Unlock(t, lease)
		next := <-got
		if next == nil {
			t.FailNow()
		}
		if next.Token() <= lease.Token() {
			t.Errorf("token %d after %d", next.Token(), lease.Token())
		}
		locktest.Unlock(t, next)
		locktest.NoLocks(t, servers)
	})
}

func TestWithLabelBeginsTheOwnersAndTheWakeChannel(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 3)
		var clients []*redlock.Client
		for range 2 {
			c, _ := locktest.Another(t, servers, quorumlock.WithLabel("a.host"))
			clients = append(clients, c)
		}
		holder := locktest.Lock(t, clients[0].Mutex("x"))
		got := locktest.Waiter(t, clients[1].Mutex("x"))
		in, err := clients[0].Inspect(t.Context(), "x")
		if err != nil || len(in.State.Queue) != 1 || !strings.HasPrefix(string(in.State.Queue[0].Owner), "a.host~") {
			t.Errorf("Inspect: %+v, %v, want one who waits as a.host~...", in.State, err)
		}
		for _, s := range servers {
			if all, ours := s.Redis.PubSubChannels("quorumlock_wake:*"), s.Redis.PubSubChannels("quorumlock_wake:a.host~*"); len(all) != 1 || len(ours) != 1 {
				t.Errorf("%s has the wake channels %q, want one that begins with the label", s.Name, all)
			}
		}
		locktest.Unlock(t, holder)
		next := <-got
		if next == nil {
			t.FailNow()
		}
		for _, lease := range []*quorumlock.Lease{holder, next} {
			if !strings.HasPrefix(string(lease.Owner()), "a.host~") {
				t.Errorf("the owner %s does not begin with the label", lease.Owner())
			}
		}
		if holder.Owner() == next.Owner() {
			t.Error("two clients of one label have one owner")
		}
		locktest.Unlock(t, next)
		locktest.NoLocks(t, servers)
	})
}
