package names

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// uses are the first calls of a lock, by its kind. n is the number of permits or ids, if any.
var uses = map[string]func(ctx context.Context, u user, name string, n int, opts ...quorumlock.Option) error{
	"mutex": func(ctx context.Context, u user, name string, _ int, opts ...quorumlock.Option) error {
		return acquires(func(user, string) quorumlock.Locker { return u.client.Mutex(name, opts...) }, false)(ctx, u, name)
	},
	"reader": func(ctx context.Context, u user, name string, _ int, opts ...quorumlock.Option) error {
		return acquires(func(user, string) quorumlock.Locker { return u.client.RWMutex(name, opts...).RLocker() }, true)(ctx, u, name)
	},
	"semaphore": func(ctx context.Context, u user, name string, n int, opts ...quorumlock.Option) error {
		return acquires(func(user, string) quorumlock.Locker { return u.client.Semaphore(name, n, opts...) }, false)(ctx, u, name)
	},
	"latch": func(ctx context.Context, u user, name string, n int, opts ...quorumlock.Option) error {
		return u.client.Latch(name, n, opts...).Done(ctx, "a")
	},
	"node's mutex": func(ctx context.Context, u user, name string, _ int, opts ...quorumlock.Option) error {
		return acquires(func(user, string) quorumlock.Locker { return u.node.Mutex(name, opts...) }, true)(ctx, u, name)
	},
	"node's semaphore": func(ctx context.Context, u user, name string, n int, opts ...quorumlock.Option) error {
		return acquires(func(user, string) quorumlock.Locker { return u.node.Semaphore(name, n, opts...) }, true)(ctx, u, name)
	},
	"node's latch": func(ctx context.Context, u user, name string, n int, opts ...quorumlock.Option) error {
		return u.node.Latch(name, n, opts...).Done(ctx, "a")
	},
	"MultiLock": func(ctx context.Context, u user, name string, _ int, opts ...quorumlock.Option) error {
		return acquires(func(user, string) quorumlock.Locker {
			return with(u.client.Mutex("other"), u.client.Mutex(name, opts...))
		}, false)(ctx, u, name)
	},
}

const (
	everything = "mutex, reader, semaphore, latch, node's mutex, node's semaphore, node's latch, MultiLock"
	leases     = "mutex, reader, semaphore, node's mutex, node's semaphore, MultiLock"
	slots      = "semaphore, node's semaphore"
	latches    = "latch, node's latch"
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
		locktest.Run(t, tt.what, func(t *testing.T) {
			servers, _ := locktest.Nodes(t, 3)
			u := newUser(t, servers)
			for kind := range strings.SplitSeq(tt.kinds, ", ") {
				err := uses[kind](t.Context(), u, tt.name, tt.n, tt.opts...)
				if err == nil || !strings.HasPrefix(err.Error(), "quorumlock: ") || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%s: %v, want %q", kind, err, tt.want)
				}
			}
			if n := locktest.Ran(servers); n > 0 {
				t.Errorf("%d scripts were sent, want none", n)
			}
		})
	}
}

// A nil context, or one that is done, costs no message. The limits themselves are no errors.
func TestABadContextIsRefusedAtOnceByEachKind(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 3)
		u := newUser(t, servers)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		var none context.Context
		for kind, use := range uses {
			if err := use(none, u, "x", 1); !errors.Is(err, quorumlock.ErrNilContext) {
				t.Errorf("%s with a nil context: %v, want ErrNilContext", kind, err)
			}
			if err := use(over, u, "x", 1); !errors.Is(err, context.Canceled) {
				t.Errorf("%s with a context that is done: %v, want Canceled", kind, err)
			}
		}
		l := u.client.Latch("x", 1)
		for _, id := range []string{"", strings.Repeat("i", 201)} {
			if err := l.Done(t.Context(), id); err == nil || !strings.Contains(err.Error(), "the id has") || !strings.Contains(err.Error(), "use 1 to 200") {
				t.Errorf("Done with an id of %d bytes: %v", len(id), err)
			}
		}
		if n := locktest.Ran(servers); n > 0 {
			t.Errorf("%d scripts were sent, want none", n)
		}
		locktest.Done(t, l, strings.Repeat("i", 200))
		locktest.Done(t, u.client.Latch(strings.Repeat("x", 1024), 4096), "a")
		locktest.Unlock(t, locktest.Lock(t, u.client.Semaphore("s", 1000, quorumlock.WithTTL(100*365*24*time.Hour))))
	})
}

// A guard that could not hold is refused wherever it is given.
func TestAGuardThatCannotHoldIsNamedWhereverItIsGiven(t *testing.T) {
	guard, long := quorumlock.WithRestartGuard(10*time.Second), quorumlock.WithTTL(20*time.Second)
	dialled := func() *node.Node {
		n, err := node.Dial("redis://h")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close() })
		return n
	}
	client := func(opt quorumlock.Option) *redlock.Client {
		c, err := redlock.New([]*node.Node{dialled()}, opt)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"h:1"}})
	t.Cleanup(func() { _ = cluster.Close() })
	clustered := node.New(cluster)
	t.Cleanup(func() { _ = clustered.Close() })

	const tooLong, unwatched = "WithTTL(20s) is longer than WithRestartGuard(10s)", "WithRestartGuard cannot watch over node cluster h:1"
	_, both := redlock.New([]*node.Node{dialled()}, long, guard)
	_, ttl := client(guard).Mutex("x", long).TryLock(t.Context())
	_, member := multilock.New([]quorumlock.Locker{client(long).Mutex("x", guard)})
	_, ofCluster := redlock.New([]*node.Node{clustered}, guard)
	_, ofNode := clustered.Mutex("x", guard).TryLock(t.Context())
	_, ofMulti := multilock.New([]quorumlock.Locker{clustered.Mutex("x")}, guard)
	for where, tt := range map[string]struct {
		err  error
		want string
	}{
		"both at New": {both, tooLong}, "TTL at Mutex": {ttl, tooLong}, "guard at a member": {member, tooLong},
		"New of a cluster": {ofCluster, unwatched}, "a cluster's mutex": {ofNode, unwatched}, "a MultiLock of a cluster": {ofMulti, unwatched},
	} {
		if tt.err == nil || !strings.Contains(tt.err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", where, tt.err, tt.want)
		}
	}
}
