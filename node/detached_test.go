package node_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// unknownScript is the error of a server that does not know a script.
type unknownScript struct{}

func (unknownScript) Error() string { return "NOSCRIPT No matching script" }
func (unknownScript) RedisError()   {}

// A client may still be working on calls when their caller uses their memory for others. Those whose
// limit has not passed may be sent again, and have kept their own arguments. The others are not.
func TestCallsMayChangeOnceAnsweredEvenIfTheClientStillWorksOnThem(t *testing.T) {
	for name, live := range map[string]bool{"the limit has not passed": true, "the limit has passed": false} {
		testkit.Run(t, name, func(t *testing.T) {
			servers, _ := testkit.Nodes(t, 1)
			rdb := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Dialer: servers[0].DialContext, ContextTimeoutEnabled: live})
			until, tries, resent := make(chan struct{}), 0, []any(nil)
			rdb.AddHook(hook(func(_ context.Context, cmds []redis.Cmder, next func() error) error {
				if !isScript(cmds[0]) {
					return next()
				}
				if tries++; tries == 1 {
					<-until
					cmds[0].SetErr(unknownScript{})
				} else {
					resent = cmds[0].Args()
					cmds[0].SetErr(errors.New("not sent"))
				}
				return cmds[0].Err()
			}))
			entry := wire.Entry{Waiter: "c:1", Ticket: 77, TTL: time.Second, Callers: 1}
			calls := []wire.Call{wire.AcquireQueued("x", "c:1.1", ttl, 5, &entry, 0)}
			want := calls[0].Args()
			answered := make(chan []wire.Reply, 1)
			transport.Of(over(t, rdb)).Do(t.Context(), client.Foreground, time.Second, calls, func(r []wire.Reply) { answered <- r })
			if !live {
				if r := <-answered; r[0].Err == nil {
					t.Error("control: the calls are not over")
				}
			}
			entry = wire.Entry{Waiter: "c:2", Ticket: 78, TTL: time.Hour, Callers: 2}
			calls[0] = wire.Leave("y", "c:2", false)
			close(until)
			synctest.Wait()
			if !live {
				want = nil
			}
			var sent []string
			for _, a := range resent[max(len(resent)-len(want), 0):] {
				sent = append(sent, a.(string))
			}
			if !slices.Equal(sent, want) {
				t.Errorf("the node was sent %q, want %q", sent, want)
			}
		})
	}
}
