package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
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

// take waits until all goroutines wait, and returns the messages heard since the last take.
func (e *ear) take() []string {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	heard := e.heard
	e.heard = nil
	return heard
}

// check checks the messages heard since the last take. An empty one tells that something may have
// been missed.
func (e *ear) check(t *testing.T, want ...string) {
	t.Helper()
	if got := e.take(); !slices.Equal(got, want) {
		t.Errorf("heard %q, want %q", got, want)
	}
}

func connections(t *testing.T, s *embedded.Server, want int) {
	t.Helper()
	synctest.Wait()
	testkit.Equal(t, s.Redis.CurrentConnectionCount(), want, "connections")
}

func again(times int, steps string) string {
	return strings.TrimSuffix(strings.Repeat(steps+", ", times), ", ")
}

func ownClient(t *testing.T, s *embedded.Server) *node.Node {
	n, err := node.New(redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Dialer: s.DialContext}))
	testkit.Must(t, err, "New")
	return n
}

// slowToClose is a connection that takes a while to close, as with TLS.
type slowToClose struct{ net.Conn }

func (c slowToClose) Close() error {
	time.Sleep(50 * time.Millisecond)
	return c.Conn.Close()
}

func slowlyClosed(t *testing.T, s *embedded.Server) *node.Node {
	return dial(t, "redis://h", node.WithDialer(wrapped(s, func(c net.Conn) net.Conn { return slowToClose{c} })))
}

// A listener hears the messages of its channel in their order, and is told ("?") whenever it may
// have missed some. "missed" is once or more.
func TestListeners(t *testing.T) {
	stories(t, map[string]story{
		"once the subscription stands": {steps: "A listens a, B listens b, A hears ?, B hears ?, publish a 0, publish a 1, publish a 2, publish c x, " +
			"A hears 0 1 2, B hears, A stops, publish a late, publish b x, A hears, B hears x, B stops"},
		"the connection is opened again for the next": {steps: again(3, "A listens a, A hears ?, publish a x, A hears x, A stops, A stops, connections 0")},
		"a late one":                      {steps: "A listens a, A hears ?, B listens a, B hears ?, A hears, publish a x, A hears x, B hears x, A stops, B stops"},
		"a lost connection":               {steps: "A listens a, A hears ?, kill, wait 1m, A hears, restart, wait 10s, A hears ?, publish a x, A hears x, connections 1, A stops, connections 0"},
		"one that comes to a node down":   {steps: "kill, A listens a, wait 1m, A hears, restart, wait 1s, A missed, publish a x, A hears x, A stops, connections 0"},
		"Close ends them":                 {steps: "A listens a, A hears ?, close, connections 0, B listens a, B hears, connections 0, B stops, A stops, A hears"},
		"Close waits for no node down":    {steps: "kill, A listens a, wait 1m, close, A stops"},
		"Close waits for no stalled node": {steps: "stall, A listens a, wait 1m, close, A stops, resume"},
		"Close waits for no subscription": {steps: "A listens a, A hears ?, delay 1h, restart, wait 300ms, close, A stops"},
		"a firewall drops the connection": {steps: "A listens a, A hears ?, wait 1m, A hears, lose, wait 4s, resume, wait 11s, A missed, publish a told, A hears told, A stops"},
		"a client closed too early":       {node: ownClient, steps: "A listens a, A hears ?, close the client, connections 0, B listens a, wait 1s, B hears, A hears, close, A stops, B stops"},
		"one that comes as the last leaves": {node: slowlyClosed, steps: again(5, "A listens a, A hears ?, A stops, wait 10ms, B listens a, wait 1s, B missed, connections 1, "+
			"publish a once, B hears once, B stops, wait 1s, connections 0")},
		"another channel keeps the connection": {steps: "A listens a, A hears ?, " + strings.Repeat("B listens b, B missed, B stops, publish a x, C listens b, C missed, A hears x, C stops, ", 20) +
			"connections 1, A stops, connections 0"},
	})
}

func TestOneConnectionServesAllListeners(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T, s *embedded.Server, n *node.Node) {
		before := s.Redis.TotalConnectionCount()
		var ears []*ear
		for i := range 60 {
			ears = append(ears, listen(n, fmt.Sprint("channel ", i%20)))
		}
		connections(t, s, 1)
		testkit.Equal(t, s.Redis.TotalConnectionCount()-before, 1, "opened connections")
		for channel, subscriptions := range s.Redis.PubSubNumSub("channel 0", "channel 19") {
			testkit.Equal(t, subscriptions, 1, "subscriptions of %s", channel)
		}
		s.Redis.Publish("channel 7", "x")
		for i, e := range ears {
			testkit.Equal(t, slices.Contains(e.take(), "x"), i%20 == 7, "listener %d heard it", i)
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
	t.Parallel()
	inBubble(t, func(t *testing.T, s *embedded.Server, _ *node.Node) {
		var failed atomic.Bool
		dialer := wrapped(s, func(c net.Conn) net.Conn { return failsOnce{c, "quiet", &failed} })
		n := over(t, redis.NewClient(&redis.Options{Addr: "10.0.0.1:6379", Protocol: 2, Dialer: dialer}))
		story{steps: "A listens busy, A missed, B listens quiet, " + strings.Repeat("wait 100ms, publish busy x, ", 10) + "B missed, A stops, B stops"}.tell(t, &tap{s: s}, n)
		if !failed.Load() {
			t.Fatal("control: no subscription has failed")
		}
	})
}

// A server may reply with anything: the program must not panic.
func TestAMalformedReplyToASubscriptionDoesNotPanic(t *testing.T) {
	for _, answer := range []string{
		"*0\r\n", "*1\r\n:1\r\n", "*1\r\n$9\r\nsubscribe\r\n", "*3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n$1\r\nx\r\n", "*2\r\n$7\r\nmessage\r\n:1\r\n",
		"*3\r\n$7\r\nmessage\r\n:1\r\n:1\r\n", "*1\r\n$4\r\npong\r\n", "*2\r\n$4\r\npong\r\n:1\r\n", "*1\r\n$8\r\npmessage\r\n", ":1\r\n", "$-1\r\n", "*-1\r\n",
	} {
		testkit.Run(t, fmt.Sprintf("%q", answer), func(t *testing.T) {
			subscriptions := 0
			f := subscriber(func(string) string {
				subscriptions++
				return answer
			})
			e := listen(dial(t, "redis://host:6379", node.WithDialer(f.dial)), "x")
			time.Sleep(10 * time.Second)
			e.check(t)
			f.mu.Lock()
			defer f.mu.Unlock()
			if subscriptions == 0 || subscriptions > 60 {
				t.Errorf("%d subscriptions in 10 s", subscriptions)
			}
			e.stop()
		})
	}
}

// A user may be allowed to hear some channels and not others.
func TestAChannelThatIsNotAllowedSilencesNoOther(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		f := subscriber(func(channel string) string {
			if channel == "forbidden" {
				return "-NOPERM No permissions to access a channel\r\n"
			}
			return subscribed(channel)
		})
		n := dial(t, "redis://host:6379", node.WithDialer(f.dial))
		allowed, forbidden := listen(n, "allowed"), listen(n, "forbidden")
		allowed.check(t, "")
		f.cut()
		time.Sleep(time.Second)
		allowed.check(t, "")
		forbidden.check(t)
		allowed.stop()
		forbidden.stop()
	})
}

// Each confirmation of a subscription wakes the waiters of its channels. So a connection that dies
// soon after it is retried later and later. One that lived for a while is replaced as soon as
// possible.
func TestConnectionsOfSubscriptionsThatDieSoonAreSeldomReplaced(t *testing.T) {
	for every, want := range map[time.Duration][2]int{70 * time.Millisecond: {80, 110}, 1100 * time.Millisecond: {50, 60}, 4 * time.Second: {14, 16}} {
		testkit.Run(t, every.String(), func(t *testing.T) {
			var down atomic.Bool
			f := subscriber(subscribed)
			e := listen(dial(t, "redis://host:6379", node.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
				if down.Load() {
					return nil, errors.New("connection refused")
				}
				return f.dial(ctx, network, addr)
			})), "x")
			e.check(t, "")
			for range time.Minute / every {
				time.Sleep(every)
				f.cut()
			}
			if n := len(e.take()); n < want[0] || n > want[1] {
				t.Errorf("woken %d times in a minute, want %d to %d", n, want[0], want[1])
			}
			time.Sleep(10 * time.Second)
			e.take()
			f.cut()
			e.check(t, "")
			time.Sleep(10 * time.Second)
			down.Store(true)
			f.cut()
			time.Sleep(time.Minute)
			e.check(t)
			down.Store(false)
			time.Sleep(200 * time.Millisecond)
			e.check(t, "")
			e.stop()
		})
	}
}
