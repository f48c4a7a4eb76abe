package transport

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// hub shares one pub/sub connection among all listeners at a node. It opens the connection for the
// first listener, and closes it after the last.
type hub struct {
	client  redis.UniversalClient
	sharded bool                  // its channels are in one slot of a cluster
	before  func(context.Context) // called before each connection is opened, and at each ping

	limit    time.Duration              // of a command, with the connection that it may need
	accepted func(context.Context) bool // whether the server accepts new credentials

	mu       sync.Mutex
	closed   bool
	channels map[string]*channel
	changed  chan struct{} // wakes the running loop; capacity 1
	moved    chan struct{} // ends the present connection; capacity 1
	running  bool
	finished sync.WaitGroup
	open     context.Context // cancelled by close
	cancel   context.CancelFunc

	// Of the present connection.
	subscribed map[string]bool
	dropped    map[string]int // by channel: UNSUBSCRIBEs without a confirmation
	last       time.Time      // time of the last message or reply
	refresh    time.Time      // when it needs new credentials; zero: never
}

// channel is one subscription and its listeners.
type channel struct {
	listeners map[*listener]struct{}
	confirmed bool // the server has confirmed it on the present connection
}

type listener struct {
	channel string
	heard   func(message string)
	hub     atomic.Pointer[hub]
	stopped bool // guarded by mu of that hub
}

const (
	retrySubscribe = 200 * time.Millisecond // minimum time between two connections
	longestRetry   = 600 * time.Millisecond // maximum of that time, and the age that resets it
	pingEvery      = 3 * time.Second        // on a silent connection
	longestSilence = 2*pingEvery + defaultTimeout
)

func (h *hub) init(client redis.UniversalClient) {
	h.client, h.before, h.limit = client, func(context.Context) {}, max(h.limit, defaultTimeout)
	h.channels = make(map[string]*channel)
	h.changed, h.moved = make(chan struct{}, 1), make(chan struct{}, 1)
	h.open, h.cancel = context.WithCancel(context.Background())
}

// Listen calls heard with every message on a channel, and with an empty message whenever messages
// may have been missed: when the subscription begins, and again after a lost connection. heard is
// called in the order of the messages, one call at a time, and must not block. It may be called
// once more while stop runs, and never after. Listen itself does no I/O.
func (n *Node) Listen(name string, heard func(message string)) (stop func()) {
	l := &listener{channel: name, heard: heard}
	h := n.hubFor(name)
	l.hub.Store(h)
	h.listen(l)
	if l.hub.Load() == &n.hub && n.Sharded() { // the shard channels were detected meanwhile
		n.moveListeners()
	}
	return l.stop
}

func (h *hub) listen(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || l.stopped {
		return
	}
	ch := h.channels[l.channel]
	if ch == nil {
		ch = &channel{listeners: make(map[*listener]struct{})}
		h.channels[l.channel] = ch
	}
	ch.listeners[l] = struct{}{}
	if ch.confirmed {
		l.heard("") // earlier messages are missing
	}
	if !h.running {
		h.running = true
		h.finished.Go(h.run)
	}
	wake(h.changed)
}

func (l *listener) stop() {
	for {
		h := l.hub.Load()
		h.mu.Lock()
		if l.hub.Load() != h { // it has moved
			h.mu.Unlock()
			continue
		}
		l.stopped = true
		if ch := h.channels[l.channel]; ch != nil {
			delete(ch.listeners, l)
		}
		wake(h.changed)
		h.mu.Unlock()
		return
	}
}

// move moves the listeners to other hubs.
func (h *hub) move(to func(channel string) *hub) {
	var moved []*listener
	h.mu.Lock()
	for name, ch := range h.channels {
		other := to(name)
		if other == h {
			continue
		}
		for l := range ch.listeners {
			l.hub.Store(other)
			moved = append(moved, l)
		}
		delete(h.channels, name)
	}
	wake(h.changed)
	h.mu.Unlock()
	for _, l := range moved {
		l.hub.Load().listen(l)
	}
}

// reconnect replaces the present connection, because the address leads to another server.
func (h *hub) reconnect() { wake(h.moved) }

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	h.channels = make(map[string]*channel)
	h.mu.Unlock()
	h.cancel()
	wake(h.changed)
	h.finished.Wait()
}

// run keeps a connection open from the first listener to the last. Each confirmation wakes the
// waiters of the channel. So while confirmed connections die within longestRetry, the pause between
// two of them doubles. It is no longer than the time between two refreshes of a waiter, which asks
// the nodes so often without messages. A failed dial wakes nobody: the next one follows after
// retrySubscribe.
func (h *hub) run() {
	retry := retrySubscribe
	for h.isWanted() {
		began, pause := time.Now(), retrySubscribe
		err := h.connect()
		confirmed := h.forget()
		if errors.Is(err, redis.ErrClosed) { // the client was closed
			h.mu.Lock()
			h.running = false // the next listener tries again
			h.mu.Unlock()
			return
		}
		if err == nil {
			continue
		}
		reload(h.client) // the slot may have moved
		switch {
		case time.Since(began) >= longestRetry:
			retry = retrySubscribe
		case confirmed:
			pause, retry = retry, min(2*retry, longestRetry)
		}
		select {
		case <-time.After(time.Until(began.Add(pause))):
		case <-h.open.Done():
		}
	}
}

// isWanted reports whether there are listeners. If not, the loop ends.
func (h *hub) isWanted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.prune()
	// With mu held: a later listener starts a new loop.
	h.running = len(h.channels) > 0
	return h.running
}

// prune drops the channels without listeners. The caller adapts its state before it releases mu: a
// new listener relies on confirmed.
func (h *hub) prune() {
	for name, ch := range h.channels {
		if len(ch.listeners) == 0 {
			delete(h.channels, name)
		}
	}
}

// forget resets the confirmations of the server after a connection, and reports whether there were
// any.
func (h *hub) forget() (confirmed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subscribed, h.dropped = nil, nil
	for _, ch := range h.channels {
		confirmed = confirmed || ch.confirmed
		ch.confirmed = false
	}
	return confirmed
}

// connect opens a connection, and keeps it until it fails, which is an error, or until there is no
// listener or the hub is closed.
//
// A connection ends with its first error. go-redis would reconnect, but with its mutex held, so
// that Close would wait. Its one command for all channels would be refused as a whole. (It still
// reconnects if the dialer of a client given to [New] ignores ctx, as go-redis's own does with TLS.
// That connection is dropped.)
func (h *hub) connect() error {
	h.bounded(h.before)
	open := h.client.Subscribe
	if h.sharded {
		open = h.client.SSubscribe
	}
	select {
	case <-h.moved: // for a former connection
	default:
	}
	ps := open(h.open)
	wanted, err := h.subscribe(ps)
	if !wanted || err != nil {
		_ = ps.Close() // there is nothing left to lose on it
		return err
	}
	h.came()
	expiring, accepted := h.expiring(), (<-chan bool)(nil)
	var broken error
	reading := make(chan struct{}) // closed when broken is set
	h.finished.Go(func() {
		defer close(reading)
		broken = h.read(ps)
	})
	defer func() {
		_ = ps.Close()
		<-reading
	}()
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for wanted && err == nil {
		select {
		case <-h.changed:
		case <-h.open.Done():
			return nil
		case <-reading:
			return broken
		case <-h.moved:
			return errMoved
		case <-expiring:
			expiring, accepted = nil, h.testCredentials()
		case ok := <-accepted:
			if ok {
				return nil
			}
			// The connection goes on with the old ones.
			expiring, accepted = time.After(refreshPause), nil
		case <-ping.C:
			// It may have had no answer, and no call may follow.
			h.bounded(h.before)
			if err := h.ping(ps); err != nil {
				return err
			}
		}
		wanted, err = h.subscribe(ps)
	}
	return err
}

// ping sends a PING on a silent connection. If the silence goes on, the way to the server is dead,
// though the connection stands.
func (h *hub) ping(ps *redis.PubSub) (err error) {
	h.mu.Lock()
	silence := time.Since(h.last)
	h.mu.Unlock()
	switch {
	case silence > longestSilence:
		return errSilent
	case silence >= pingEvery:
		h.bounded(func(ctx context.Context) { err = ps.Ping(ctx) })
	}
	return err
}

// came records that the server has sent something.
func (h *hub) came() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = time.Now()
}

// errSilent ends a silent connection.
var errSilent = errors.New("the server does not answer on a connection of subscriptions")

// bounded calls f with a ctx that ends with the hub, or after the limit.
func (h *hub) bounded(f func(context.Context)) {
	ctx, cancel := context.WithTimeout(h.open, h.limit)
	defer cancel()
	f(ctx)
}

// subscribe adapts the connection's subscriptions to the listeners, with one command for each: a
// server refuses a whole command if the user may not hear one of its channels. wanted reports
// whether there are listeners.
func (h *hub) subscribe(ps *redis.PubSub) (wanted bool, err error) {
	var add, drop []string
	h.mu.Lock()
	h.prune()
	if h.subscribed == nil {
		h.subscribed, h.dropped = make(map[string]bool), make(map[string]int)
	}
	for name := range h.channels {
		if !h.subscribed[name] {
			add = append(add, name)
			h.subscribed[name] = true
		}
	}
	for name := range h.subscribed {
		if h.channels[name] == nil {
			drop = append(drop, name)
			delete(h.subscribed, name)
			h.dropped[name]++
		}
	}
	wanted = len(h.channels) > 0
	h.mu.Unlock()
	if !wanted || len(add)+len(drop) == 0 {
		return wanted, nil
	}
	subscribe, unsubscribe := ps.Subscribe, ps.Unsubscribe
	if h.sharded {
		subscribe, unsubscribe = ps.SSubscribe, ps.SUnsubscribe
	}
	h.bounded(func(ctx context.Context) {
		for _, name := range drop {
			if err = unsubscribe(ctx, name); err != nil {
				return
			}
		}
		for _, name := range add {
			if err = subscribe(ctx, name); err != nil {
				return
			}
		}
	})
	return true, err
}

// read passes messages to the listeners, until the connection fails. go-redis panics at replies
// that no Redis sends.
func (h *hub) read(ps *redis.PubSub) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the server sent a message that cannot be read: is it Redis? (%v)", r)
		}
	}()
	// A cancelled ctx without a deadline does not interrupt a read, but keeps go-redis from
	// reconnecting after an error. See dialGuarded.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for {
		m, err := ps.Receive(ctx)
		h.came()
		switch said, ok := err.(redis.Error); { //nolint:errorlint // it is never wrapped
		case ok && isRefused(said):
			continue
		case err != nil:
			return err
		}
		if err := h.dispatch(m); err != nil {
			return err
		}
	}
}

// isRefused reports whether the user may not hear a channel or send a PING, or the server knows no
// PING. After other errors, such as MOVED or BUSY, the server may lack a subscription that it, or
// another server, would accept later.
func isRefused(err redis.Error) bool {
	return strings.HasPrefix(err.Error(), "NOPERM") || strings.HasPrefix(err.Error(), "ERR")
}

// errMoved ends a connection to a server that the address has left.
var errMoved = errors.New("the address leads to another server")

// errEnded ends a connection after the server has ended a subscription: its slot has moved.
var errEnded = errors.New("the server has ended a subscription")

func (h *hub) dispatch(m any) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch m := m.(type) {
	case *redis.Subscription:
		begins := m.Kind == "subscribe" || m.Kind == "ssubscribe"
		switch {
		case begins:
		case h.dropped[m.Channel] > 0:
			h.dropped[m.Channel]--
		case h.subscribed[m.Channel]:
			return errEnded
		}
		if ch := h.channels[m.Channel]; ch != nil {
			if ch.confirmed = begins; begins {
				ch.tell("")
			}
		}
	case *redis.Message:
		if ch := h.channels[m.Channel]; ch != nil {
			ch.tell(m.Payload)
		}
	}
	return nil
}

func (ch *channel) tell(message string) {
	for l := range ch.listeners {
		l.heard(message)
	}
}
