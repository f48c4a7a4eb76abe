package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
)

// What a server raises within a bundle begins with the same code as what it raises for a single call: by the code, a client knows that
// the server is down, and that it owes it what it gave back.
func TestErrorsOfABundleAreThoseOfItsCalls(t *testing.T) {
	needServers(t)
	t.Parallel() // on servers of its own
	s := start(t, &redis.Options{}, nil)
	n, err := node.Dial(s.url())
	must(t, err)
	t.Cleanup(func() { must(t, n.Close()) })
	const ttl = time.Minute
	acquire := func(i int) wire.Call {
		return wire.Acquire(fmt.Sprint("bundle:", i), "alice~1:1", ttl, 1, 1)
	}
	releases := make([]wire.Call, 3)
	for i := range releases {
		releases[i] = wire.Release(fmt.Sprint("bundle:", i), "alice~1:1", 1)
	}
	code := func(r wire.Reply) string {
		e, ok := errors.AsType[*quorumlock.NodeError](r.Err)
		if !ok {
			return ""
		}
		word, _, _ := strings.Cut(e.Err.Error(), " ")
		return word
	}
	for name, tt := range map[string]struct {
		code       string
		begin, end []any
	}{
		"memory":   {"OOM", []any{"config", "set", "maxmemory", "1"}, []any{"config", "set", "maxmemory", "0"}},
		"replicas": {"NOREPLICAS", []any{"config", "set", "min-replicas-to-write", "1"}, []any{"config", "set", "min-replicas-to-write", "0"}},
		"master":   {"READONLY", []any{"replicaof", "127.0.0.1", "1"}, []any{"replicaof", "no", "one"}},
		"type":     {"WRONGTYPE", []any{"mset", wire.QueueKey("bundle:0"), "x", wire.QueueKey("bundle:1"), "x", wire.QueueKey("bundle:2"), "x"}, []any{"flushall"}},
	} {
		if name == "replicas" && !since(7, 0) {
			continue // scripts may write without replicas there
		}
		for _, r := range transport.Of(n).Send(patiently(t), acquire(0), acquire(1), acquire(2)) {
			must(t, r.Err) // the server knows the script
		}
		transport.Of(n).Send(patiently(t), releases...)
		must(t, s.admin.Do(patiently(t), tt.begin...).Err())
		alone := transport.Of(n).Send(patiently(t), acquire(0))[0]
		together := transport.Of(n).Send(patiently(t), acquire(0), acquire(1), acquire(2))
		must(t, s.admin.Do(patiently(t), tt.end...).Err())
		if code(alone) != tt.code {
			t.Errorf("%s: alone: %v", name, alone.Err)
		}
		for i, r := range together {
			if code(r) != tt.code {
				t.Errorf("%s: call %d of a bundle: %v; alone: %v", name, i, r.Err, alone.Err)
			}
		}
	}
}
