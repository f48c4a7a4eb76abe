package quorumlock_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/internal/settings"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/locktest"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// lockOf returns the error of Lock, and fails the test if TryLock has another one.
func lockOf(t *testing.T, l quorumlock.Locker) error {
	t.Helper()
	_, err := l.Lock(t.Context())
	if _, e := l.TryLock(t.Context()); errors.Is(e, quorumlock.ErrMisuse) != errors.Is(err, quorumlock.ErrMisuse) {
		t.Errorf("Lock: %v; TryLock: %v", err, e)
	}
	return err
}

func TestEveryWrongUseIsErrMisuse(t *testing.T) {
	var noCtx context.Context
	ctx := t.Context()
	dial := func(url string, opts ...node.Option) *node.Node {
		n, err := node.Dial(url, opts...)
		testkit.Must(t, err, "Dial")
		t.Cleanup(func() { _ = n.Close() })
		return n
	}
	one, two := dial("redis://one"), dial("redis://two")
	client := func(opts ...quorumlock.Option) *redlock.Client {
		c, err := redlock.New([]*node.Node{one, two}, opts...)
		testkit.Must(t, err, "New")
		return c
	}
	c := client()
	adopted := func(client redis.UniversalClient, opts ...node.Option) error {
		return testkit.Err(node.New(client, opts...))
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"c:1"}})
	clustered, err := node.New(cluster)
	testkit.Must(t, err, "New")
	defer clustered.Close() //nolint:errcheck // nothing was opened
	ring := redis.NewRing(&redis.RingOptions{})
	plain := redis.NewClient(&redis.Options{Addr: "p:1"})
	defer func() { _, _, _ = cluster.Close(), ring.Close(), plain.Close() }()
	do := func(context.Context) error { return nil }
	long := strings.Repeat("x", settings.MaxName+1)
	many := func(n int, name func(int) string) (members []quorumlock.Locker) {
		for i := range n {
			members = append(members, c.Mutex(name(i)))
		}
		return members
	}
	mutex := func(opts ...quorumlock.Option) error { return lockOf(t, c.Mutex("x", opts...)) }
	all := func(opts ...quorumlock.Option) error {
		return testkit.Err(multilock.New(many(2, func(i int) string { return "abc"[i : i+1] }), opts...))
	}
	acquire := func(n *node.Node, name string, o quorumlock.Owner, ttl time.Duration, hold int) error {
		return testkit.Err(n.Acquire(ctx, name, o, ttl, hold))
	}
	lead := func(m *redlock.Mutex, value string) error {
		return testkit.Err(election.New(m, value).Campaign(ctx))
	}

	for name, got := range map[string]error{
		"Do without a context":                  quorumlock.Do(noCtx, c.Mutex("x"), do),
		"Do without a Locker":                   quorumlock.Do(ctx, nil, do),
		"Do with a nil Mutex":                   quorumlock.Do(ctx, (*redlock.Mutex)(nil), do),
		"Do without a function":                 quorumlock.Do(ctx, c.Mutex("x"), nil),
		"Once without a context":                testkit.Err(quorumlock.Once(noCtx, c.Mutex("x"), 0, do)),
		"Once without a Locker":                 testkit.Err(quorumlock.Once(ctx, nil, 0, do)),
		"Once without a function":               testkit.Err(quorumlock.Once(ctx, c.Mutex("x"), 0, nil)),
		"Once for a negative time":              testkit.Err(quorumlock.Once(ctx, c.Mutex("x"), -1, do)),
		"Lock without a context":                testkit.Err(c.Mutex("x").Lock(noCtx)),
		"a Mutex without a name":                lockOf(t, c.Mutex("")),
		"a writer without a name":               lockOf(t, c.RWMutex("")),
		"a reader without a name":               lockOf(t, c.RWMutex("").RLocker()),
		"a Semaphore without a name":            lockOf(t, c.Semaphore("", 1)),
		"a Semaphore without permits":           lockOf(t, c.Semaphore("x", 0)),
		"a Semaphore with many permits":         lockOf(t, c.Semaphore("x", settings.MaxPermits+1)),
		"a Latch without a name":                c.Latch("", 1).Wait(ctx),
		"a Latch of no ids":                     c.Latch("x", 0).Wait(ctx),
		"Done without an id":                    c.Latch("x", 1).Done(ctx, ""),
		"Done without a context":                c.Latch("x", 1).Done(noCtx, "1"),
		"Downgrade without a lease":             c.RWMutex("x").Downgrade(ctx, nil),
		"Shutdown without a context":            client().Shutdown(noCtx),
		"WithLabel of one lock":                 mutex(quorumlock.WithLabel("x")),
		"WithRestartGuard of a cluster":         lockOf(t, clustered.Mutex("x", quorumlock.WithRestartGuard(time.Minute))),
		"WithQuorum, a minority":                mutex(quorumlock.WithQuorum(1)),
		"WithQuorum of a node":                  lockOf(t, one.Mutex("x", quorumlock.WithQuorum(1))),
		"WithLabel of a node":                   lockOf(t, one.Mutex("x", quorumlock.WithLabel("x"))),
		"WithData of a Semaphore":               lockOf(t, c.Semaphore("x", 1, quorumlock.WithData("x"))),
		"WithData of a Latch":                   c.Latch("x", 1, quorumlock.WithData("x")).Wait(ctx),
		"WithData of a client":                  testkit.Err(redlock.New([]*node.Node{one}, quorumlock.WithData("x"))),
		"WithData, too long":                    mutex(quorumlock.WithData(long)),
		"WithData, not UTF-8":                   mutex(quorumlock.WithData("\xff")),
		"node.Dial of nothing":                  testkit.Err(node.Dial("")),
		"node.Dial of white space":              testkit.Err(node.Dial(" redis://x")),
		"node.Dial without a scheme":            testkit.Err(node.Dial("localhost:6379")),
		"node.Dial of no address":               testkit.Err(node.Dial("x")),
		"node.Dial of garbage":                  testkit.Err(node.Dial("redis://%")),
		"node.Dial of a page":                   testkit.Err(node.Dial("https://x")),
		"node.Dial with an @":                   testkit.Err(node.Dial("redis://a@b@c")),
		"node.Dial of a socket's host":          testkit.Err(node.Dial("unix://h/s")),
		"node.Dial with a bad database":         testkit.Err(node.Dial("redis://x/y")),
		"node.Dial without a host":              testkit.Err(node.Dial("redis://:1")),
		"node.Dial with TLS for a plain server": testkit.Err(node.Dial("redis://x", node.WithTLSConfig(new(tls.Config)))),
		"node.WithTimeout, 0":                   testkit.Err(node.Dial("redis://x", node.WithTimeout(0))),
		"node.WithName, empty":                  testkit.Err(node.Dial("redis://x", node.WithName(""))),
		"node.New without a client":             adopted(nil),
		"node.New with a Ring":                  adopted(ring),
		"node.New with TLS":                     adopted(plain, node.WithTLSConfig(new(tls.Config))),
		"a zero Node":                           lockOf(t, new(node.Node).Mutex("x")),
		"a name for several servers":            lockOf(t, clustered.Mutex("}{")),
		"Acquire without a name":                acquire(one, "", "a:1", time.Second, 1),
		"Acquire without an owner":              acquire(one, "x", "", time.Second, 1),
		"Acquire with a bad owner":              acquire(one, "x", "a", time.Second, 1),
		"Acquire with a negative TTL":           acquire(one, "x", "a:1", -1, 1),
		"Acquire with no hold":                  acquire(one, "x", "a:1", time.Second, 0),
		"Renew with a negative TTL":             testkit.Err(one.Renew(ctx, "x", "a:1", -1)),
		"redlock.Dial of nothing":               testkit.Err(redlock.Dial(nil)),
		"redlock.Dial of a bad URL":             testkit.Err(redlock.Dial([]string{"x"})),
		"redlock.New without nodes":             testkit.Err(redlock.New(nil)),
		"redlock.New with a nil node":           testkit.Err(redlock.New([]*node.Node{nil})),
		"redlock.New with a zero node":          testkit.Err(redlock.New([]*node.Node{{}})),
		"redlock.New with one node twice":       testkit.Err(redlock.New([]*node.Node{one, one})),
		"redlock.New with one server twice":     testkit.Err(redlock.New([]*node.Node{one, dial("redis://one")})),
		"redlock.New with a bad option":         testkit.Err(redlock.New([]*node.Node{one}, quorumlock.WithTTL(0))),
		"multilock.New without members":         testkit.Err(multilock.New(nil)),
		"multilock.New with a stranger":         testkit.Err(multilock.New([]quorumlock.Locker{locktest.New("x")})),
		"multilock.New with a nil member":       testkit.Err(multilock.New([]quorumlock.Locker{(*redlock.Mutex)(nil)})),
		"multilock.New with a bad member":       testkit.Err(multilock.New([]quorumlock.Locker{c.Mutex("")})),
		"multilock.New with a member twice":     testkit.Err(multilock.New([]quorumlock.Locker{c.Mutex("x"), c.Mutex("x")})),
		"multilock.New with a guarded member":   testkit.Err(multilock.New([]quorumlock.Locker{c.Mutex("x", quorumlock.WithRestartGuard(time.Hour))})),
		"multilock.New with too many members":   testkit.Err(multilock.New(many(1001, func(i int) string { return fmt.Sprint(i) }))),
		"multilock.New with too long names":     testkit.Err(multilock.New(many(2*64<<10/1000, func(i int) string { return fmt.Sprint(i) + long[:1000] }))),
		"multilock.New with differing clients":  testkit.Err(multilock.New([]quorumlock.Locker{c.Mutex("x"), client(quorumlock.WithTTL(time.Minute)).Mutex("y")})),
		"multilock.New with a quorum":           all(quorumlock.WithQuorum(2)),
		"multilock.New with a prefix":           all(quorumlock.WithPrefix("x")),
		"multilock.New with a label":            all(quorumlock.WithLabel("x")),
		"multilock.New with data":               all(quorumlock.WithData("x")),
		"multilock.New with a member's data":    testkit.Err(multilock.New([]quorumlock.Locker{c.Mutex("x", quorumlock.WithData("x"))})),
		"multilock.New with a bad option":       all(quorumlock.WithTTL(0)),
		"an election without a Mutex":           lead(nil, ""),
		"an election with a bad Mutex":          lead(c.Mutex(""), ""),
		"an election with an owner":             lead(c.Mutex("x", quorumlock.WithOwner("a:1")), ""),
		"an election with data":                 lead(c.Mutex("x", quorumlock.WithData("x")), ""),
		"an election with a long value":         lead(c.Mutex("x"), strings.Repeat("x", 64<<10+1)),
		"an election without a function":        election.New(c.Mutex("x"), "").Run(ctx, nil),
		"an election without a context":         testkit.Err(election.New(c.Mutex("x"), "").Leader(noCtx)),
	} {
		if !errors.Is(got, quorumlock.ErrMisuse) {
			t.Errorf("%s: %v, which is not ErrMisuse", name, got)
			continue
		}
		for _, other := range []error{quorumlock.ErrHeld, quorumlock.ErrNoQuorum, quorumlock.ErrDeadlock, context.Canceled, context.DeadlineExceeded} {
			if errors.Is(got, other) {
				t.Errorf("%s: %v is %v, too", name, got, other)
			}
		}
		if text := got.Error(); strings.ContainsAny(text, "\r\n") || !strings.HasPrefix(text, "quorumlock: ") {
			t.Errorf("%s: %q is not one line with the prefix", name, text)
		}
	}
}

func TestWrongUseOfALeaseIsErrMisuse(t *testing.T) {
	c, nodes := connect()
	defer nodes.Close()
	hold := func(l quorumlock.Locker) *quorumlock.Lease {
		lease := testkit.MustLock(t, l)
		t.Cleanup(func() { _ = lease.Unlock(context.Background()) })
		return lease
	}
	within := hold(testkit.Multi(t, c.Mutex("a"), c.Mutex("b"))).Context()
	reader, writer, slot := hold(c.RWMutex("read").RLocker()), hold(c.RWMutex("write")), hold(c.Semaphore("slots", 1))
	again := testkit.LockIn(t, writer.Context(), c.RWMutex("write"))
	defer again.Unlock(t.Context()) //nolint:errcheck // the client is closed next

	for name, tt := range map[string]struct{ got, want error }{
		"a member of its own MultiLock":     {testkit.Err(c.Mutex("a").Lock(within)), quorumlock.ErrDeadlock},
		"a member of its own, at once":      {testkit.Err(c.Mutex("a").TryLock(within)), quorumlock.ErrDeadlock},
		"a campaign in its own hold":        {testkit.Err(election.New(c.Mutex("lead"), "").Campaign(hold(c.Mutex("lead")).Context())), quorumlock.ErrDeadlock},
		"a reader that writes":              {testkit.Err(c.RWMutex("read").Lock(reader.Context())), quorumlock.ErrUpgrade},
		"Downgrade of a reader":             {c.RWMutex("read").Downgrade(t.Context(), reader), quorumlock.ErrMisuse},
		"Downgrade of another lock's lease": {c.RWMutex("other").Downgrade(t.Context(), writer), quorumlock.ErrMisuse},
		"Downgrade of a slot":               {c.RWMutex("slots").Downgrade(t.Context(), slot), quorumlock.ErrMisuse},
		"Downgrade of two leases":           {c.RWMutex("write").Downgrade(t.Context(), writer), quorumlock.ErrMisuse},
		"Extend without a context":          {writer.Extend(noContext), quorumlock.ErrNilContext},
	} {
		if !errors.Is(tt.got, tt.want) || !errors.Is(tt.got, quorumlock.ErrMisuse) || errors.Is(tt.got, quorumlock.ErrHeld) {
			t.Errorf("%s: %v, want %v", name, tt.got, tt.want)
		}
		if tt.got != nil && strings.ContainsAny(tt.got.Error(), "\r\n") {
			t.Errorf("%s: %q has several lines", name, tt.got)
		}
	}
}

// A held lock and failed nodes are no misuse.
func TestOtherFailuresAreNotErrMisuse(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, nodes := connect()
		defer nodes.Close()
		lease := testkit.Lock(t, c.Mutex("x"))
		_, held := c.Mutex("x").TryLock(t.Context())
		testkit.Must(t, lease.Unlock(t.Context()), "Unlock")
		twice := lease.Unlock(t.Context())
		nodes.Kill(1, 3)
		_, down := c.Mutex("x").TryLock(t.Context())
		for want, got := range map[error]error{quorumlock.ErrHeld: held, quorumlock.ErrNotHeld: twice, quorumlock.ErrNoQuorum: down} {
			if !errors.Is(got, want) || errors.Is(got, quorumlock.ErrMisuse) {
				t.Errorf("%v, want %v alone", got, want)
			}
		}
	})
}
