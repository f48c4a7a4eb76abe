package integration

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// machine has the times in which this machine was too busy to judge time limits. Only a soak
// records them, since it lasts for hours, beside other work. The promises about holders and tokens
// are judged in these times, too.
var machine strain

// strain is a set of time spans. The zero value is empty.
type strain struct {
	mu    sync.Mutex
	spans []span // in order; no two overlap or touch
}

type span struct{ from, to time.Time }

// add adds a span that ends after all others.
func (s *strain) add(from, to time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := len(s.spans) - 1; last >= 0 && !from.After(s.spans[last].to) {
		s.spans[last].to = to
		return
	}
	s.spans = append(s.spans, span{from, to})
}

// between returns how much of the time between its arguments is in the set.
func (s *strain) between(from, to time.Time) (sum time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.spans {
		if p.from.Before(from) {
			p.from = from
		}
		if p.to.After(to) {
			p.to = to
		}
		sum += max(p.to.Sub(p.from), 0)
	}
	return sum
}

// since is between with the present as its end.
func (s *strain) since(from time.Time) time.Duration { return s.between(from, time.Now()) }

// look is the interval between two requests to a server.
const look = 50 * time.Millisecond

// watch adds the times in which this process wakes up late, or a server without a fault takes long
// to answer a PING. It ends when stop is called. A client for each server waits for each answer.
func (s *strain) watch(servers []*server, struck func(i int) bool, long time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	asked := make([]atomic.Int64, len(servers)) // start of the open request, in ns; 0 if there is none
	for i, server := range servers {
		all.Go(func() {
			c := redis.NewClient(&redis.Options{Addr: server.addr, PoolSize: 1, MaxRetries: -1, ReadTimeout: -1})
			defer c.Close() //nolint:errcheck // it has nothing to lose
			for ctx.Err() == nil {
				asked[i].Store(time.Now().UnixNano())
				_ = c.Ping(ctx).Err() // a server that restarts returns one
				asked[i].Store(0)
				time.Sleep(look)
			}
		})
	}
	all.Go(func() {
		for last := time.Now(); ctx.Err() == nil; {
			time.Sleep(look)
			now := time.Now()
			busy := now.Sub(last)-look > long
			for i := range asked {
				at := asked[i].Load()
				busy = busy || at != 0 && now.UnixNano()-at > int64(long) && !struck(i)
			}
			if busy {
				s.add(last, now)
			}
			last = now
		}
	})
	return func() {
		cancel()
		all.Wait()
	}
}

func TestStrainCountsEachMomentOnce(t *testing.T) {
	began := time.Now()
	at := func(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }
	var s strain
	for _, p := range [][2]int{{1, 2}, {2, 4}, {6, 7}} {
		s.add(at(p[0]), at(p[1]))
	}
	for _, tt := range []struct{ from, to, want int }{{0, 10, 4}, {0, 1, 0}, {3, 7, 2}, {4, 6, 0}, {8, 9, 0}} {
		if got := s.between(at(tt.from), at(tt.to)); got != time.Duration(tt.want)*time.Second {
			t.Errorf("from %d to %d s: %v, want %d s", tt.from, tt.to, got, tt.want)
		}
	}
}

// Only a server without a fault is a sign of a busy machine.
func TestAFrozenServerIsStrainUnlessItIsStruck(t *testing.T) {
	needServers(t)
	s := start(t, &redis.Options{}, nil)
	for _, struck := range []bool{false, true} {
		var busy strain
		stop := busy.watch([]*server{s}, func(int) bool { return struck }, 10*look)
		s.pause(t)
		time.Sleep(40 * look)
		counted := busy.since(time.Time{}) > 10*look
		s.resume(t)
		stop()
		if counted == struck {
			t.Errorf("struck: %v, and its silence counts: %v", struck, counted)
		}
	}
}
