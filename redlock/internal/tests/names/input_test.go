package names

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestMain(m *testing.M) { testkit.Main(m) }

type use = func(ctx context.Context, u user, name string, n int, opts ...quorumlock.Option) error

// uses are the first calls of a lock, by its kind. n is the number of permits or ids, if any.
var uses = map[string]use{
	"mutex":        locks(mutex, false),
	"semaphore":    locks(slot, false),
	"node's mutex": locks(single, true),
	"reader":       locks(reader, true),
	"MultiLock":    locks(multi, false),
	"latch": func(ctx context.Context, u user, name string, n int, opts ...quorumlock.Option) error {
		return u.client.Latch(name, n, opts...).Done(ctx, "a")
	},
}

// locks is a use by Lock, or by TryLock.
func locks(of maker, try bool) use {
	return func(ctx context.Context, u user, name string, n int, opts ...quorumlock.Option) error {
		return acquire(ctx, of(u, name, n, opts...), try)
	}
}

const (
	everything = "mutex, reader, semaphore, latch, node's mutex, MultiLock"
	leases     = "mutex, reader, semaphore, node's mutex, MultiLock"
	slots      = "semaphore"
	latches    = "latch"
)

func of(opts ...quorumlock.Option) []quorumlock.Option { return opts }

// For every kind, bad input is an error that names it and the fix, and nothing is sent.
func TestBadInputIsRefusedAtOnceByEachKind(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, tt := range []struct {
		what, kinds, name string
		n                 int
		opts              []quorumlock.Option
		want              string
	}{
		{"no name", everything, "", 1, nil, "the name of the lock is empty"},
		{"a long name", everything, strings.Repeat("x", 1025), 1, nil, "has 1025 bytes with its prefix: use at most 1024"},
		{"a long prefix", everything, "xy", 1, of(quorumlock.WithPrefix(strings.Repeat("x", 1023))), "has 1025 bytes with its prefix: use at most 1024"},
		{"a label", everything, "x", 1, of(quorumlock.WithLabel("other")), "WithLabel is for"},
		{"an impossible quorum", everything, "x", 1, of(quorumlock.WithQuorum(9)), "WithQuorum"},
		{"no TTL", leases, "x", 1, of(quorumlock.WithTTL(0)), "TTL"},
		{"a negative TTL", leases, "x", 1, of(quorumlock.WithTTL(-time.Second)), "TTL"},
		{"a short TTL", leases, "x", 1, of(quorumlock.WithTTL(time.Microsecond)), "WithTTL(1µs) is too short"},
		{"an endless TTL", leases, "x", 1, of(quorumlock.WithTTL(100*year + 1)), "TTL"},
		{"a TTL beyond the guard", leases, "x", 1, of(quorumlock.WithTTL(20*time.Second), quorumlock.WithRestartGuard(10*time.Second)), "WithTTL(20s) is longer than WithRestartGuard(10s)"},
		{"no permits", slots, "x", 0, nil, "permits is 0"},
		{"a negative number of permits", slots, "x", -1, nil, "permits is -1"},
		{"too many permits", slots, "x", 1001, nil, "permits is 1001"},
		{"no ids", latches, "x", 0, nil, `Latch("x", 0): n is how many ids open the latch: use 1 to 4096`},
		{"a negative number of ids", latches, "x", -1, nil, "use 1 to 4096"},
		{"too many ids", latches, "x", 4097, nil, "use 1 to 4096"},
		{"a short retention", latches, "x", 1, of(quorumlock.WithRetention(time.Second)), "WithRetention(1s): use 1m0s to"},
		{"an endless retention", latches, "x", 1, of(quorumlock.WithRetention(1 << 62)), "WithRetention("},
	} {
		testkit.Run(t, tt.what, func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 3)
			u := newUser(t, servers)
			for kind := range strings.SplitSeq(tt.kinds, ", ") {
				err := uses[kind](t.Context(), u, tt.name, tt.n, tt.opts...)
				if err == nil || !strings.HasPrefix(err.Error(), "quorumlock: ") || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: %v, want %q", kind, err, tt.want)
				}
			}
			testkit.Equal(t, testkit.Ran(servers), 0, "scripts were sent")
		})
	}
}

// A nil context, or one that is done, costs no message. The limits themselves are no errors.
func TestABadContextIsRefusedAtOnceByEachKind(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		servers, _ := testkit.Nodes(t, 3)
		u := newUser(t, servers)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		var none context.Context
		for kind, use := range uses {
			testkit.Is(t, use(none, u, "x", 1), quorumlock.ErrNilContext, "%s with a nil context", kind)
			testkit.Is(t, use(over, u, "x", 1), context.Canceled, "%s with a context that is done", kind)
		}
		l := u.client.Latch("x", 1)
		for _, id := range []string{"", strings.Repeat("i", 201)} {
			if err := l.Done(t.Context(), id); err == nil || !strings.Contains(err.Error(), "the id has") || !strings.Contains(err.Error(), "use 1 to 200") {
				t.Errorf("Done with an id of %d bytes: %v", len(id), err)
			}
		}
		testkit.Equal(t, testkit.Ran(servers), 0, "scripts were sent")
		testkit.Done(t, l, strings.Repeat("i", 200))
		testkit.Done(t, u.client.Latch(strings.Repeat("x", 1024), 4096), "a")
		testkit.Unlock(t, testkit.Lock(t, u.client.Semaphore("s", 1000, quorumlock.WithTTL(100*365*24*time.Hour))))
	})
}

// A guard that could not hold is refused wherever it is given.
func TestAGuardThatCannotHoldIsNamedWhereverItIsGiven(t *testing.T) {
	guard, long := quorumlock.WithRestartGuard(10*time.Second), quorumlock.WithTTL(20*time.Second)
	dialled := func() *node.Node {
		n, err := node.Dial("redis://h")
		testkit.Must(t, err, "Dial")
		t.Cleanup(func() { _ = n.Close() })
		return n
	}
	client := func(opt quorumlock.Option) *redlock.Client {
		c, err := redlock.New([]*node.Node{dialled()}, opt)
		testkit.Must(t, err, "New")
		return c
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"h:1"}})
	t.Cleanup(func() { _ = cluster.Close() })
	clustered, err := node.New(cluster)
	testkit.Must(t, err, "New")
	t.Cleanup(func() { _ = clustered.Close() })

	const tooLong, unwatched = "WithTTL(20s) is longer than WithRestartGuard(10s)", "WithRestartGuard cannot watch over node cluster h:1"
	for where, tt := range map[string]struct {
		err  error
		want string
	}{
		"both at New":              {testkit.Err(redlock.New([]*node.Node{dialled()}, long, guard)), tooLong},
		"TTL at Mutex":             {testkit.Err(client(guard).Mutex("x", long).TryLock(t.Context())), tooLong},
		"guard at a member":        {testkit.Err(multilock.New([]quorumlock.Locker{client(long).Mutex("x", guard)})), tooLong},
		"New of a cluster":         {testkit.Err(redlock.New([]*node.Node{clustered}, guard)), unwatched},
		"a cluster's mutex":        {testkit.Err(clustered.Mutex("x", guard).TryLock(t.Context())), unwatched},
		"a MultiLock of a cluster": {testkit.Err(multilock.New([]quorumlock.Locker{clustered.Mutex("x")}, guard)), unwatched},
	} {
		if tt.err == nil || !strings.Contains(tt.err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", where, tt.err, tt.want)
		}
	}
}

func TestLockNamesAreTakenAsTheyAre(t *testing.T) {
	names := []string{
		"{x}", "x", "a{b}c", "{", "}", "}{", "{}", "two words", " ", "\t\n", "schloß/замок/锁🔒", "\xff\xfe\x00",
		"my_redisson_lock_token:{x}y", "%s%d", "*", "a:b", strings.Repeat("k", 1024), strings.Repeat("é", 512),
	}
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		other, _ := testkit.Another(t, servers)
		leases := make([]*quorumlock.Lease, len(names))
		for i, name := range names {
			leases[i] = testkit.TryLock(t, c.Mutex(name)) // no name is in the way of another
			if leases[i].Name() != name {
				t.Errorf("the lease of %q is named %q", name, leases[i].Name())
			}
		}
		for i, name := range names {
			testkit.Refused(t, other.Mutex(name))
			testkit.HoldsAll(t, servers, leases[i])
			got := testkit.Go(func() *quorumlock.Lease { return testkit.MustLock(t, other.Mutex(name)) })
			time.Sleep(100 * time.Millisecond)
			began := time.Now()
			testkit.OK(t, leases[i].Unlock(t.Context()), "Unlock of %q", name)
			next := <-got
			testkit.Took(t, began, 0, 10*time.Millisecond, "the waiter for %q was woken", name)
			testkit.Rises(t, leases[i], next)
			testkit.Unlock(t, next)
		}
		testkit.NoLocks(t, servers)
	})
}

// The keys of such a lock would be at several servers of the cluster, which refuses scripts then.
func TestANameThatAClusterCannotKeepTogetherIsAnError(t *testing.T) {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"h:1"}})
	t.Cleanup(func() { _ = client.Close() })
	n, err := node.New(client)
	testkit.Must(t, err, "New")
	c := testkit.Of(t, []*node.Node{n})
	for _, name := range []string{"a}b", "a{b", "{}x", "}", "x{}{y}"} {
		for where, err := range map[string]error{
			"TryLock":          testkit.Err(c.Mutex(name).TryLock(t.Context())),
			"Lock":             testkit.Err(c.Mutex(name).Lock(t.Context())),
			"Inspect":          testkit.Err(c.Inspect(t.Context(), name)),
			"ForceUnlock":      c.ForceUnlock(t.Context(), name),
			"a node's TryLock": testkit.Err(n.Mutex(name).TryLock(t.Context())),
			"Acquire":          testkit.Err(n.Acquire(t.Context(), name, quorumlock.NewOwner(), time.Second, 1)),
			"a node's Inspect": testkit.Err(transport.Of(n).Inspect(t.Context(), name)),
			"multilock.New":    testkit.Err(multilock.New([]quorumlock.Locker{n.Mutex(name)})),
		} {
			if err == nil || !strings.Contains(err.Error(), "makes no hash tag") || !strings.Contains(err.Error(), "cluster h:1") {
				t.Fatalf("%s of %q: %v", where, name, err)
			}
		}
	}
	testkit.OK(t, transport.Of(n).ValidateName("{billing}:7"), "ValidateName of a name with a tag")
	if single, _ := node.Dial("redis://h"); transport.Of(single).ValidateName("a}b") != nil {
		t.Error("a single server refuses a name with a brace")
	}
}

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
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3, quorumlock.WithPrefix("app:"))
		other, _ := testkit.Another(t, servers, quorumlock.WithPrefix("app:"))
		holder := testkit.Lock(t, c.Mutex("x"))
		onlyKeysOf(t, servers, "app:x")
		got := testkit.Waiter(t, other.Mutex("x"))
		onlyKeysOf(t, servers, "app:x")
		in, err := other.Inspect(t.Context(), "x")
		if err != nil || in.State.Owner != holder.Owner() || len(in.State.Queue) != 1 {
			t.Errorf("Inspect: %+v, %v, want the holder and one who waits", in.State, err)
		}
		// Renewed, and refreshed; no refresh is under way.
		time.Sleep(time.Minute + 100*time.Millisecond)
		testkit.Held(t, holder)
		attempts := testkit.Ran(servers, "acquire")
		testkit.Unlock(t, holder)
		next := testkit.Served(t, got, holder)
		testkit.Equal(t, testkit.Ran(servers, "acquire")-attempts, 0, "attempts after Unlock")
		onlyKeysOf(t, servers, "app:x")
		testkit.OK(t, c.ForceUnlock(t.Context(), "x"), "ForceUnlock")
		testkit.Lost(t, next, quorumlock.DefaultTTL)
		_ = next.Unlock(t.Context()) // it is lost

		both := testkit.Multi(t, c.Mutex("x"), c.Mutex("y"))
		lease := testkit.Lock(t, both)
		onlyKeysOf(t, servers, "app:x", "app:y")

		// A lock is its key: with or without a prefix, locks of one key exclude each other.
		plain, _ := testkit.Another(t, servers)
		_, nodes := testkit.Paths(t, servers[:1])
		testkit.Refused(t, nodes[0].Mutex("x", quorumlock.WithPrefix("app:")))
		testkit.Unlock(t, testkit.TryLock(t, plain.Mutex("x")))
		got = testkit.Waiter(t, plain.Mutex("app:x"))
		testkit.Unlock(t, lease)
		testkit.Unlock(t, testkit.Served(t, got, lease))
		testkit.NoLocks(t, servers)
	})
}

func TestWithLabelBeginsTheOwnersAndTheWakeChannel(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		servers, _ := testkit.Nodes(t, 3)
		one, _ := testkit.Another(t, servers, quorumlock.WithLabel("a.host"))
		two, _ := testkit.Another(t, servers, quorumlock.WithLabel("a.host"))
		holder := testkit.Lock(t, one.Mutex("x"))
		got := testkit.Waiter(t, two.Mutex("x"))
		in, err := one.Inspect(t.Context(), "x")
		if err != nil || len(in.State.Queue) != 1 || !strings.HasPrefix(string(in.State.Queue[0].Owner), "a.host~") {
			t.Errorf("Inspect: %+v, %v, want one who waits as a.host~...", in.State, err)
		}
		for _, s := range servers {
			if all, ours := s.Redis.PubSubChannels("quorumlock_wake:*"), s.Redis.PubSubChannels("quorumlock_wake:a.host~*"); len(all) != 1 || len(ours) != 1 {
				t.Errorf("%s has the wake channels %q, want one that begins with the label", s.Name, all)
			}
		}
		testkit.Unlock(t, holder)
		next := testkit.Served(t, got, holder)
		for _, lease := range []*quorumlock.Lease{holder, next} {
			if !strings.HasPrefix(string(lease.Owner()), "a.host~") {
				t.Errorf("the owner %s does not begin with the label", lease.Owner())
			}
		}
		if holder.Owner() == next.Owner() {
			t.Error("two clients of one label have one owner")
		}
		testkit.Unlock(t, next)
		testkit.NoLocks(t, servers)
	})
}
