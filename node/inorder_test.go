package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Over a client of the caller's, the calls of one waiter go one after the other. A call that does
// not get its turn in time is answered at its deadline, and is never sent.
func TestACallWhoseTurnDoesNotComeInTimeIsNotSent(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		servers, _ := locktest.Nodes(t, 1)
		n := over(t, redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Dialer: servers[0].DialContext, ContextTimeoutEnabled: true}))
		if _, err := transport.Of(n).Inspect(t.Context(), "x"); err != nil { // it is connected
			t.Fatal(err)
		}
		a := newAsked()
		ask := func(key string, limit time.Duration) {
			entry := wire.Entry{Waiter: "c:1", Ticket: 77, TTL: time.Second, Callers: 1}
			transport.Of(n).Do(context.Background(), quorum.Foreground, time.Now().Add(limit), []wire.Call{wire.AcquireQueued(key, "c:1.1", ttl, 5, &entry, 0)}, a.answer(key))
		}
		servers[0].Stall()
		ask("sent", time.Second)
		ask("brief", 300*time.Millisecond)
		ask("as long", time.Second) // its turn comes as its time is over
		ask("patient", 3*time.Second)
		settle(2 * time.Second)
		servers[0].Resume()
		settle(time.Second)
		a.check(t, "sent", time.Second, true)
		a.check(t, "brief", 300*time.Millisecond, true)
		a.check(t, "as long", time.Second, true)
		a.check(t, "patient", 2*time.Second, false)
		if !notSent(a.errs["brief"]) || !notSent(a.errs["as long"]) || notSent(a.errs["sent"]) {
			t.Errorf("sent: %v, brief: %v, as long: %v", a.errs["sent"], a.errs["brief"], a.errs["as long"])
		}
		if servers[0].Redis.Exists("brief") || servers[0].Redis.Exists("as long") || !servers[0].Redis.Exists("patient") {
			t.Errorf("the node has the keys %q", servers[0].Redis.Keys())
		}
	})
}
