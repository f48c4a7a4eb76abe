package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/node"
)

// ear has the messages that a listener heard. It is safe for concurrent use.
type ear struct {
	mu    sync.Mutex
	heard []string
	stop  func()
}

func listen(n *node.Node, channel string) *ear {
	e := &ear{}
	e.stop = transport.Of(n).Listen(channel, func(message string) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.heard = append(e.heard, message)
	})
	return e
}

// check waits until all goroutines wait, and checks the messages heard since last.
func (e *ear) check(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !slices.Equal(e.heard, want) {
		t.Errorf("heard %q, want %q", e.heard, want)
	}
	e.heard = nil
}

// checkMissed checks that the listener was told, once or more, that it may have missed something.
func (e *ear) checkMissed(t *testing.T) {
	t.Helper()
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	if got := slices.Compact(e.heard); !slices.Equal(got, []string{""}) {
		t.Errorf("heard %q, want only that something may have been missed", got)
	}
	e.heard = nil
}

func connections(t *testing.T, s *embedded.Server, want int) {
	t.Helper()
	synctest.Wait()
	if got := s.Redis.CurrentConnectionCount(); got != want {
		t.Errorf("%d connections, want %d", got, want)
	}
}

func TestAListenerHearsItsChannelOnceTheSubscriptionStands(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		a, b := listen(n, "a"), listen(n, "b")
		a.check(t, "") // messages before the subscription may have been missed
		b.check(t, "")
		for i := range 3 {
			s.Redis.Publish("a", fmt.Sprint(i))
		}
		s.Redis.Publish("c", "nobody listens")
		a.check(t, "0", "1", "2")
		b.check(t)
		a.stop()
		s.Redis.Publish("a", "late")
		s.Redis.Publish("b", "x")
		a.check(t)
		b.check(t, "x")
		b.stop()
	})
}

func TestOneConnectionServesAllListeners(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		before := s.Redis.TotalConnectionCount()
		var ears []*ear
		for i := range 60 {
			ears = append(ears, listen(n, fmt.Sprint("channel ", i%20)))
		}
		connections(t, s, 1)
		if got := s.Redis.TotalConnectionCount() - before; got != 1 {
			t.Errorf("%d connections were opened, want 1", got)
		}
		for i, subscribers := range s.Redis.PubSubNumSub("channel 0", "channel 19") {
			if subscribers != 1 {
				t.Errorf("%q has %d subscriptions, want 1", i, subscribers)
			}
		}
		s.Redis.Publish("channel 7", "x")
		synctest.Wait()
		for i, e := range ears {
			e.mu.Lock()
			if got := slices.Contains(e.heard, "x"); got != (i%20 == 7) {
				t.Errorf("listener %d heard it: %v", i, got)
			}
			e.mu.Unlock()
		}
		for _, e := range ears[1:] {
			e.stop()
		}
		connections(t, s, 1)
		if got := s.Redis.PubSubChannels("*"); !slices.Equal(got, []string{"channel 0"}) {
			t.Errorf("subscribed to %q, want the last listener's channel", got)
		}
		ears[0].stop()
		connections(t, s, 0)
	})
}

func TestTheConnectionIsOpenedAgainForTheNextListener(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		for range 3 {
			e := listen(n, "a")
			e.check(t, "")
			s.Redis.Publish("a", "x")
			e.check(t, "x")
			e.stop()
			e.stop() // once more is no harm
			connections(t, s, 0)
		}
	})
}

func TestALateListenerIsToldThatItMayHaveMissedSomething(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		first := listen(n, "a")
		first.check(t, "")
		second := listen(n, "a")
		second.check(t, "")
		first.check(t) // it missed nothing
		s.Redis.Publish("a", "x")
		first.check(t, "x")
		second.check(t, "x")
		first.stop()
		second.stop()
	})
}

func TestALostConnectionIsToldOnceItStandsAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		e := listen(n, "a")
		e.check(t, "")
		s.Kill()
		time.Sleep(time.Minute)
		e.check(t)
		s.Restart(true)
		time.Sleep(10 * time.Second)
		e.check(t, "")
		s.Redis.Publish("a", "x")
		e.check(t, "x")
		connections(t, s, 1)
		e.stop()
		connections(t, s, 0)
	})
}

func TestAListenerMayComeWhileTheNodeIsDown(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		s.Kill()
		e := listen(n, "a")
		time.Sleep(time.Minute)
		e.check(t)
		s.Restart(true)
		time.Sleep(time.Second)
		e.checkMissed(t)
		s.Redis.Publish("a", "x")
		e.check(t, "x")
		e.stop()
		connections(t, s, 0)
	})
}

func TestListenersComeAndGoWhileMessagesCome(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		stays := listen(n, "a")
		stays.check(t, "")
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for range 20 {
					e := listen(n, fmt.Sprint("abc"[i%3:i%3+1]))
					time.Sleep(time.Millisecond)
					e.stop()
				}
			})
		}
		var want []string
		for i := range 100 {
			s.Redis.Publish("a", fmt.Sprint(i))
			want = append(want, fmt.Sprint(i))
			synctest.Wait()
		}
		wg.Wait()
		stays.check(t, want...)
		connections(t, s, 1)
		stays.stop()
		connections(t, s, 0)
	})
}

func TestAListenerThatHasStoppedHearsNothingMore(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		var mu sync.Mutex
		var stopped bool
		for range 50 {
			stopped = false
			stop := transport.Of(n).Listen("a", func(string) {
				mu.Lock()
				defer mu.Unlock()
				if stopped {
					t.Error("called after stop had returned")
				}
			})
			s.Redis.Publish("a", "x")
			stop()
			mu.Lock()
			stopped = true
			mu.Unlock()
		}
		synctest.Wait()
	})
}

func TestCloseEndsTheConnectionAndItsListeners(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		e := listen(n, "a")
		e.check(t, "")
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		connections(t, s, 0)
		late := listen(n, "a")
		late.check(t)
		connections(t, s, 0)
		late.stop()
		e.stop()
		e.check(t)
	})
}

// A client that is closed too early takes the subscription with it. The node must still close.
func TestAClientClosedUnderItsListenersEndsTheSubscription(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
		client := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Dialer: s.DialContext})
		n := node.New(client)
		err := transport.Of(n).Err()
		if err != nil {
			t.Fatal(err)
		}
		first := listen(n, "a")
		first.check(t, "")
		if err := client.Close(); err != nil {
			t.Fatal(err)
		}
		connections(t, s, 0)
		second := listen(n, "a")
		time.Sleep(time.Second)
		second.check(t)
		first.check(t)
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		first.stop()
		second.stop()
	})
}

func TestCloseDoesNotWaitForANodeThatIsDown(t *testing.T) {
	for name, fault := range map[string]func(*embedded.Server){"down": (*embedded.Server).Kill, "stalled": (*embedded.Server).Stall} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
				fault(s)
				e := listen(n, "a")
				time.Sleep(time.Minute)
				start := time.Now()
				if err := n.Close(); err != nil {
					t.Error(err)
				}
				if took := time.Since(start); took > node.DefaultTimeout {
					t.Errorf("Close took %v", took)
				}
				e.stop()
				s.Resume()
			})
		})
	}
}

// failsOnce is a connection that cannot send some text the first time.
type failsOnce struct {
	net.Conn
	text   string
	failed *atomic.Bool
}

func (c failsOnce) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(c.text)) && !c.failed.Swap(true) {
		return 0, errors.New("broken pipe")
	}
	return c.Conn.Write(b)
}

// Messages on other channels must not put off the next try.
func TestAFailedSubscriptionIsTriedAgainWhileOthersHear(t *testing.T) {
	inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
		var failed atomic.Bool
		client := redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Protocol: 2, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := s.DialContext(ctx, network, addr)
			return failsOnce{c, "quiet", &failed}, err
		}})
		n := node.New(client)
		busy := listen(n, "busy")
		synctest.Wait()
		quiet := listen(n, "quiet")
		for range 10 {
			time.Sleep(100 * time.Millisecond)
			s.Redis.Publish("busy", "x")
		}
		synctest.Wait()
		if !failed.Load() {
			t.Fatal("control: no subscription has failed")
		}
		quiet.checkMissed(t)
		busy.stop()
		quiet.stop()
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
}
