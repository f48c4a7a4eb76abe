package integration

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// fault is something that befalls one node, or all.
type fault struct {
	name       string
	forgets    bool // the node may lose data, or the order of time
	everywhere bool // it strikes every node at once, and costs no more than a retry
	users      bool // it needs servers with users

	// strike causes the fault and returns a function that heals it, without lasting effects.
	strike func(t *testing.T, m *member) (heal func())
}

// befall is strike, healed at the end of the test at the latest.
func (f fault) befall(t *testing.T, m *member) (heal func()) {
	t.Helper()
	heal = once(f.strike(t, m))
	t.Cleanup(heal)
	return heal
}

// once returns a function that calls do the first time. Unlike the function of sync.OnceFunc, this
// one does not panic if do ends its goroutine, as t.Fatal does.
func once(do func()) func() {
	var o sync.Once
	return func() { o.Do(do) }
}

func TestAHealThatFailsEndsItsTestAlone(t *testing.T) {
	heal, ended := once(runtime.Goexit), make(chan struct{})
	for range 2 {
		go func() {
			defer func() { ended <- struct{}{} }()
			heal()
		}()
		<-ended
	}
}

var faults = []fault{
	{name: "pause", strike: func(t *testing.T, m *member) func() {
		m.pause(t)
		return func() { m.resume(t) }
	}},
	{name: "kill and restart with its data", strike: func(t *testing.T, m *member) func() {
		m.kill(t)
		return func() { m.restart(t) }
	}},
	{name: "kill and restart without its data", forgets: true, strike: func(t *testing.T, m *member) func() {
		m.wipe(t)
		m.kill(t)
		return func() { m.restart(t) }
	}},
	{name: "cut off the network both ways", strike: func(t *testing.T, m *member) func() {
		m.cut(t)
		return func() { m.join(t) }
	}},
	{name: "requests do not arrive", strike: func(_ *testing.T, m *member) func() {
		m.way.requests.shut()
		return m.way.requests.open
	}},
	{name: "requests arrive but replies do not", strike: func(_ *testing.T, m *member) func() {
		m.way.replies.shut()
		return m.way.replies.open
	}},
	{name: "every third reply is lost with its connection, after the script ran", strike: func(_ *testing.T, m *member) func() {
		m.way.cutEvery.Store(3)
		return func() { m.way.cutEvery.Store(0) }
	}},
	{name: "clock steps forward", forgets: true, strike: func(t *testing.T, m *member) func() {
		m.step(t, m.leap)
		return func() {}
	}},
	{name: "clock steps back", forgets: true, strike: func(t *testing.T, m *member) func() {
		m.step(t, -m.leap)
		// Keys with up to an hour left expire here.
		return func() { m.step(t, m.leap) }
	}},
	{name: "keys are evicted", forgets: true, strike: evict},
	{name: "data is flushed", forgets: true, strike: func(t *testing.T, m *member) func() {
		must(t, m.admin.FlushAll(patiently(t)).Err())
		return func() {}
	}},
	{name: "out of memory", strike: func(t *testing.T, m *member) func() {
		must(t, m.admin.ConfigSet(patiently(t), "maxmemory", "1").Err())
		return func() { must(t, m.admin.ConfigSet(patiently(t), "maxmemory", "0").Err()) }
	}},
	{name: "scripts are denied", users: true, strike: func(t *testing.T, m *member) func() {
		must(t, acl(patiently(t), m.admin, "-@scripting"))
		return func() { must(t, acl(patiently(t), m.admin, "+@scripting")) }
	}},
	{name: "scripts are flushed", everywhere: true, strike: func(t *testing.T, m *member) func() {
		return again(t, 200*time.Millisecond, func(ctx context.Context) error { return m.admin.ScriptFlush(ctx).Err() })
	}},
	{name: "connections are killed", everywhere: true, strike: func(t *testing.T, m *member) func() {
		kill := func() {
			must(t, m.admin.ClientKillByFilter(patiently(t), "TYPE", "pubsub").Err())
			must(t, m.admin.ClientKillByFilter(patiently(t), "TYPE", "normal").Err())
		}
		kill()
		return kill // once more
	}},
}

// again does something now and every so often until stop is called.
func again(t *testing.T, every time.Duration, do func(context.Context) error) (stop func()) {
	t.Helper()
	must(t, do(patiently(t)))
	var running sync.WaitGroup
	over := make(chan struct{})
	running.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(every):
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			err := do(ctx)
			cancel()
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	stop = once(func() {
		close(over)
		running.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// evict puts a server under such pressure that it throws locks away.
func evict(t *testing.T, m *member) (heal func()) {
	t.Helper()
	const ballast = "ballast:"
	ctx := patiently(t)
	must(t, m.admin.ConfigSet(ctx, "notify-keyspace-events", "Ee").Err())
	evicted := m.admin.PSubscribe(ctx, "__keyevent@*__:evicted")
	defer evicted.Close() //nolint:errcheck // it is only listened to
	_, err := evicted.Receive(ctx)
	must(t, err)
	must(t, m.admin.ConfigSet(ctx, "maxmemory-policy", "allkeys-lru").Err())
	must(t, m.admin.ConfigSet(ctx, "maxmemory", strconv.Itoa(usedMemory(ctx, t, m.admin)+256<<10)).Err())
	load := strings.Repeat("x", 16<<10)
	n := 0
	stop := again(t, time.Millisecond, func(ctx context.Context) error {
		n++
		err := m.admin.Set(ctx, fmt.Sprint(ballast, n%64), load, 0).Err()
		if redis.HasErrorPrefix(err, "OOM") {
			return nil // all is thrown away, and it is too much yet
		}
		return err
	})
	for {
		message, err := evicted.ReceiveMessage(ctx)
		must(t, err)
		if !strings.HasPrefix(message.Payload, ballast) {
			t.Logf("%q is evicted", message.Payload)
			break
		}
	}
	return func() {
		stop()
		ctx := patiently(t)
		must(t, m.admin.ConfigSet(ctx, "maxmemory", "0").Err())
		must(t, m.admin.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())
		must(t, m.admin.ConfigSet(ctx, "notify-keyspace-events", "").Err())
		for i := range 64 {
			must(t, m.admin.Del(ctx, fmt.Sprint(ballast, i)).Err())
		}
	}
}

func usedMemory(ctx context.Context, t *testing.T, s *redis.Client) int {
	t.Helper()
	info, err := s.InfoMap(ctx, "memory").Result()
	must(t, err)
	n, err := strconv.Atoi(info["Memory"]["used_memory"])
	must(t, err)
	return n
}
