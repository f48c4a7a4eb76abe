package node_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// The client uses a promoted replica of a cluster within two seconds. go-redis alone reloads its
// map of the cluster once a minute, and not after a failed connection.
func TestAClusterCountsAgainAfterAFailover(t *testing.T) {
	for name, fail := range map[string]func(*embedded.Server){"refused": (*embedded.Server).Kill, "silent": (*embedded.Server).Stall} {
		for deadlines, prompt := range map[string]bool{"": false, ", with deadlines": true} {
			testkit.Run(t, name+deadlines, func(t *testing.T) {
				servers, _ := testkit.Nodes(t, 2)
				addrs := []string{"10.0.0.1:6379", "10.0.0.2:6379"}
				var master atomic.Int32
				n := over(t, redis.NewClusterClient(&redis.ClusterOptions{
					Addrs: addrs[:1], ContextTimeoutEnabled: prompt, DialTimeout: time.Second,
					Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
						return servers[slices.Index(addrs, addr)].DialContext(ctx, network, addr)
					},
					ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
						return []redis.ClusterSlot{{Start: 0, End: 16383, Nodes: []redis.ClusterNode{{Addr: addrs[master.Load()]}}}}, nil
					}}))
				testkit.Must(t, testkit.Send(t.Context(), n, count("a"))[0].Err, "before the failure")
				fail(servers[0])
				for began := time.Now(); time.Since(began) < 4*time.Second; settle(100 * time.Millisecond) {
					if r := testkit.Send(t.Context(), n, count("a"))[0]; r.Err == nil {
						t.Fatal("a server that has failed has answered")
					}
				}
				master.Store(1)
				failedOver := time.Now()
				for testkit.Send(t.Context(), n, count("a"))[0].Err != nil {
					settle(100 * time.Millisecond)
				}
				testkit.Took(t, failedOver, 0, 2*time.Second, "the return of the cluster")
			})
		}
	}
}

// The answers of a cluster's servers while a slot moves. None of these calls has run.
var moving = map[string]string{
	"some keys are elsewhere": "TRYAGAIN Multiple keys request during rehashing of slot",
	"all keys are elsewhere":  "ASK 15495 10.0.0.2:6379",
	"the slot is elsewhere":   "MOVED 15495 10.0.0.2:6379",
}

func TestALockWhoseSlotMovesWaits(t *testing.T) {
	for what, answer := range moving {
		for deadlines, prompt := range map[string]bool{"": false, ", with deadlines": true} {
			testkit.Run(t, what+deadlines, func(t *testing.T) {
				servers, _ := testkit.Nodes(t, 1)
				s := servers[0]
				m := cluster(t, s, prompt).Mutex("a")
				for what, move := range map[string]time.Duration{"a quick move": 10 * time.Millisecond, "a slow move": 250 * time.Millisecond} {
					during := func(call func() error) {
						s.Refuse(answer)
						time.AfterFunc(move, func() { s.Refuse("") })
						began := time.Now()
						testkit.Must(t, call(), "%s", what)
						testkit.Took(t, began, move, 2*move+10*time.Millisecond, "%s", what)
					}
					var lease *quorumlock.Lease
					during(func() (err error) {
						lease, err = m.TryLock(t.Context())
						return err
					})
					during(func() error { return lease.Extend(t.Context()) })
					during(func() error { return lease.Unlock(t.Context()) })
				}
				s.Refuse(answer)
				began := time.Now()
				_, err := m.TryLock(t.Context())
				if code, _, _ := strings.Cut(answer, " "); err == nil || !strings.Contains(err.Error(), code) {
					t.Errorf("%v, want the server's %s", err, code)
				}
				testkit.Took(t, began, 250*time.Millisecond, 500*time.Millisecond, "a move without an end")
				s.Refuse("")
			})
		}
	}
}

// A batch of renewals must not wait for the one whose slot moves.
func TestABatchDoesNotWaitForASlotThatMoves(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		servers, _ := testkit.Nodes(t, 1)
		n := cluster(t, servers[0], true)
		servers[0].Refuse(moving["some keys are elsewhere"])
		began := time.Now()
		answered := make(chan struct{})
		transport.Of(n).Do(t.Context(), client.Background, time.Second, []wire.Call{count("{s}a"), count("{s}b")}, func(rs []wire.Reply) {
			for _, r := range rs {
				if r.Err == nil {
					t.Error("a refused call has run")
				}
			}
			close(answered)
		})
		<-answered
		testkit.Took(t, began, 0, 0, "the batch")
		servers[0].Refuse("")
	})
}

// refusal is an error of a server.
type refusal string

func (e refusal) Error() string { return string(e) }
func (refusal) RedisError()     {}

// An attempt that is sent again must not run after the release of its waiter.
func TestACallThatWasOvertakenIsNotSentAgain(t *testing.T) {
	const owner = quorumlock.Owner("client:1.1")
	for what, answer := range map[string]string{"its slot moves": moving["some keys are elsewhere"], "its script is unknown": "NOSCRIPT No matching script."} {
		testkit.Run(t, what, func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 1)
			n := cluster(t, servers[0], true)
			refused := 0
			n.Client().AddHook(hook(func(_ context.Context, cmds []redis.Cmder, next func() error) error {
				err := next()
				if len(cmds) == 2 {
					refused++
					cmds[0].SetErr(refusal(answer))
				}
				return err
			}))
			acquire, release := wire.Acquire("a", owner, time.Second, 1, 0), wire.Release("a", owner, 1)
			for _, call := range []wire.Call{acquire, release} { // the server knows the scripts then
				testkit.Must(t, testkit.Send(t.Context(), n, call)[0].Err, "alone")
			}
			replies := testkit.Send(t.Context(), n, acquire, release)
			code, _, _ := strings.Cut(answer, " ")
			if e := replies[0].Err; e == nil || !strings.Contains(e.Error(), code) || refused != 1 {
				t.Errorf("%v after %d refusals, want %s after one", e, refused, code)
			}
			if e := replies[1].Err; e != nil && !errors.Is(e, quorumlock.ErrNotHeld) {
				t.Error(e)
			}
			testkit.Nothing(t, servers)
		})
	}
}

// While a slot moves away, a script at its server cannot use a key again that it has deleted. The
// first part of the script has run.
func TestAScriptThatAMovingSlotStopsMayHaveRun(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		servers, _ := testkit.Nodes(t, 1)
		n := cluster(t, servers[0], true)
		var stops atomic.Bool // a retry of a release sends, too
		n.Client().AddHook(hook(func(_ context.Context, cmds []redis.Cmder, next func() error) error {
			err := next()
			if err == nil && isScript(cmds[0]) && stops.CompareAndSwap(true, false) {
				err = refusal("ERR Script attempted to access a non local key in a cluster node script: cd10, on @user_script:60.")
				cmds[0].SetErr(err)
			}
			return err
		}))
		m := n.Mutex("a")
		for range 2 { // of which the second knows the scripts
			stops.Store(true)
			lease, err := m.TryLock(t.Context())
			testkit.Must(t, err, "TryLock")
			stops.Store(true)
			testkit.Must(t, lease.Unlock(t.Context()), "Unlock")
			testkit.Nothing(t, servers)
		}
	})
}
