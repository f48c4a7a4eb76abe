package node_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/quorum"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// stalling holds back the first script, and then replies that the server does not know it. It keeps
// the later commands.
type stalling struct {
	until <-chan struct{}

	mu    sync.Mutex
	first bool
	sent  []any
}

func (s *stalling) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *stalling) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *stalling) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := cmd.Name(); name != "evalsha" && name != "eval" {
			return next(ctx, cmd)
		}
		s.mu.Lock()
		first := !s.first
		s.first = true
		if !first {
			s.sent = cmd.Args()
		}
		s.mu.Unlock()
		if !first {
			cmd.SetErr(errors.New("not sent"))
			return cmd.Err()
		}
		<-s.until
		cmd.SetErr(unknownScript{})
		return cmd.Err()
	}
}

type unknownScript struct{}

func (unknownScript) Error() string { return "NOSCRIPT No matching script" }
func (unknownScript) RedisError()   {}

// A client that ignores deadlines may still be working on calls that were answered at their
// deadline. By then, the caller may use their memory for other calls.
func TestCallsMayChangeOnceAnsweredEvenIfTheClientStillWorksOnThem(t *testing.T) {
	for name, heeds := range map[string]bool{"deadlines are heeded": true, "deadlines are not heeded": false} {
		locktest.Run(t, name, func(t *testing.T) {
			servers, _ := locktest.Nodes(t, 1)
			until := make(chan struct{})
			hook := &stalling{until: until}
			client := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Dialer: servers[0].DialContext, ContextTimeoutEnabled: heeds})
			client.AddHook(hook)
			n := over(t, client)
			entry := wire.Entry{Waiter: "c:1", Ticket: 77, TTL: time.Second, Callers: 1}
			calls := []wire.Call{wire.AcquireQueued("x", "c:1.1", ttl, 5, &entry, 0)}
			want := calls[0].Args()
			answered := make(chan []wire.Reply, 1)
			transport.Of(n).Do(t.Context(), quorum.Foreground, time.Now().Add(time.Second), calls, func(r []wire.Reply) { answered <- r })
			if !heeds {
				if r := <-answered; r[0].Err == nil {
					t.Error("control: the calls are not over")
				}
			}
			entry = wire.Entry{Waiter: "c:2", Ticket: 78, TTL: time.Hour, Callers: 2}
			calls[0] = wire.Leave("y", "c:2", false)
			close(until)
			synctest.Wait()
			hook.mu.Lock()
			defer hook.mu.Unlock()
			var sent []string
			for _, a := range hook.sent[max(len(hook.sent)-len(want), 0):] {
				sent = append(sent, a.(string))
			}
			if !slices.Equal(sent, want) {
				t.Errorf("the node was sent %q, want %q", sent, want)
			}
		})
	}
}
