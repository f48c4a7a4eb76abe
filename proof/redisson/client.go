package redisson

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/settings"
)

// ErrNotHeld is Java's IllegalMonitorStateException: the thread that unlocks has no entry.
var ErrNotHeld = errors.New("redisson: the thread does not hold the lock")

// DefaultWatchdog is the default of lockWatchdogTimeout.
const DefaultWatchdog = 30 * time.Second

// Client is one JVM with Redisson. It is safe for concurrent use.
type Client struct {
	ID       string
	Watchdog time.Duration

	redis   redis.UniversalClient
	hears   redis.UniversalClient // where it subscribes
	sharded bool

	mu      sync.Mutex
	entries map[string]*entry // by channel
	renewed map[held]*watchdog
	running sync.WaitGroup
}

// held is an entry of a thread in a lock.
type held struct {
	name, thread string
}

// Option changes how a client is connected.
type Option func(*Client)

// Sharded makes the client publish and subscribe with SPUBLISH and SSUBSCRIBE, as Redisson does in
// a cluster of Redis 7.
func Sharded() Option { return func(c *Client) { c.sharded = true } }

// SubscribingAt makes the client subscribe at another server, as Redisson does with
// SubscriptionMode.SLAVE.
func SubscribingAt(r redis.UniversalClient) Option { return func(c *Client) { c.hears = r } }

// New returns a client over a connection pool of its caller's.
func New(r redis.UniversalClient, opts ...Option) *Client {
	c := &Client{ID: settings.NewID(), Watchdog: DefaultWatchdog, redis: r, hears: r, entries: make(map[string]*entry), renewed: make(map[held]*watchdog)}
	for _, o := range opts {
		o(c)
	}
	return c
}

// Close ends the watchdogs and the subscriptions. Held locks stay until their leases end.
func (c *Client) Close() {
	c.mu.Lock()
	for _, w := range c.renewed {
		w.stop()
	}
	c.mu.Unlock()
	c.running.Wait()
}

func (c *Client) publish() string {
	if c.sharded {
		return "spublish"
	}
	return "publish"
}

// prefixed is a key or channel beside that of a lock.
func prefixed(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// entry is a subscription that the threads of a client share. Each message is one permit, or one for
// each blocked thread.
type entry struct {
	waiters int
	blocked atomic.Int32 // the threads that wait for a permit
	ready   chan struct{}
	err     error
	latch   chan struct{}
	ps      *redis.PubSub
}

// permits is the number of messages that an entry remembers. More would change nothing.
const permits = 4096

// subscribe returns when the server has confirmed the subscription.
func (c *Client) subscribe(ctx context.Context, channel string) (*entry, error) {
	c.mu.Lock()
	e := c.entries[channel]
	first := e == nil
	if first {
		e = &entry{ready: make(chan struct{}), latch: make(chan struct{}, permits)}
		c.entries[channel] = e
	}
	e.waiters++
	c.mu.Unlock()
	if first {
		e.open(c, channel)
		close(e.ready)
	}
	select {
	case <-e.ready:
	case <-ctx.Done():
		c.unsubscribe(channel, e)
		return nil, ctx.Err()
	}
	if e.err != nil {
		c.unsubscribe(channel, e)
		return nil, e.err
	}
	return e, nil
}

func (e *entry) open(c *Client, channel string) {
	ctx := context.Background() // the subscription outlives the thread that made it
	if c.sharded {
		e.ps = c.hears.SSubscribe(ctx, channel)
	} else {
		e.ps = c.hears.Subscribe(ctx, channel)
	}
	if _, e.err = e.ps.Receive(ctx); e.err != nil {
		return
	}
	c.running.Go(func() {
		for {
			m, err := e.ps.ReceiveMessage(ctx)
			if err != nil {
				return // closed
			}
			e.heard(m.Payload)
		}
	})
}

// heard takes a message: 0 lets one thread try, 1 all blocked threads; others are ignored.
func (e *entry) heard(message string) {
	n, err := strconv.Atoi(message)
	if err != nil || n != 0 && n != 1 {
		return
	}
	for range 1 - n + n*int(e.blocked.Load()) {
		select {
		case e.latch <- struct{}{}:
		default:
		}
	}
}

func (c *Client) unsubscribe(channel string, e *entry) {
	c.mu.Lock()
	e.waiters--
	last := e.waiters == 0
	if last {
		delete(c.entries, channel)
	}
	c.mu.Unlock()
	if last && e.ps != nil {
		_ = e.ps.Close()
	}
}

// watchdog renews the entry of a thread until it is stopped.
type watchdog struct {
	count int
	stop  context.CancelFunc
}

func (c *Client) watch(l *Lock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := held{l.name, l.field()}
	if w := c.renewed[key]; w != nil {
		w.count++
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.renewed[key] = &watchdog{count: 1, stop: cancel}
	c.running.Go(func() {
		t := time.NewTicker(c.Watchdog / 3)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			if n, err := l.kind.renew.Run(ctx, c.redis, []string{l.name}, c.Watchdog.Milliseconds(), key.thread).Int(); err != nil || n == 0 {
				return
			}
		}
	})
}

func (c *Client) unwatch(l *Lock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := held{l.name, l.field()}
	if w := c.renewed[key]; w != nil {
		if w.count--; w.count == 0 {
			w.stop()
			delete(c.renewed, key)
		}
	}
}
