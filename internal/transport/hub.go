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

// hub shares one pub/sub connection among all that listen at a node. The connection is opened for
// the first listener and closed behind the last.
type hub struct {
	client  redis.UniversalClient
	sharded bool                  // its channels are those of one slot of a cluster
	before  func(context.Context) // called before each connection is opened, and now and then while it stands; or nil

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
	dropped    map[string]int // by channel, how many UNSUBSCRIBEs are yet to be confirmed
	last       time.Time      // when something came
}

// channel is one subscription and its listeners.
type channel struct {
	listeners map[*listener]struct{}
	confirmed bool // by the server, on the present connection
}

type listener struct {
	channel string
	heard   func(message string)
	hub     atomic.Pointer[hub]
}

const (
	retrySubscribe = 200 * time.Millisecond // between two connections, at least
	pingEvery      = 3 * time.Second        // where nothing else comes
	longestSilence = 2*pingEvery + defaultTimeout
)

func (h *hub) init(client redis.UniversalClient) {
	h.client = client
	h.channels = make(map[string]*channel)
	h.changed, h.moved = make(chan struct{}, 1), make(chan struct{}, 1)
	h.open, h.cancel = context.WithCancel(context.Background())
}

// Listen calls heard with every message on a channel, and with an empty message whenever messages may
// have been missed: once the subscription is established, and again after a lost connection. heard is called
// in the order of the messages, one call at a time, and must not block. It may be called once more
// while stop runs, and never after. Listen itself does no I/O.
func (n *Node) Listen(name string, heard func(message string)) (stop func()) {
	if n.err != nil {
		return func() {}
	}
	l := &listener{channel: name, heard: heard}
	n.hubFor(name).listen(l)
	if l.hub.Load() == &n.hub && n.Sharded() { // found out meanwhile
		n.moveListeners()
	}
	return l.stop
}

func (h *hub) listen(l *listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.hub.Store(h)
	if h.closed {
		return
	}
	ch := h.channels[l.channel]
	if ch == nil {
		ch = &channel{listeners: make(map[*listener]struct{})}
		h.channels[l.channel] = ch
	}
	ch.listeners[l] = struct{}{}
	if ch.confirmed {
		l.heard("") // it has missed what was published before it came
	}
	if !h.running {
		h.running = true
		h.finished.Go(h.run)
	}
	h.signal()
}

func (l *listener) stop() {
	for {
		h := l.hub.Load()
		h.mu.Lock()
		if l.hub.Load() != h { // it has moved
			h.mu.Unlock()
			continue
		}
		if ch := h.channels[l.channel]; ch != nil {
			delete(ch.listeners, l)
		}
		h.signal()
		h.mu.Unlock()
		return
	}
}

// move gives all listeners to other hubs.
func (h *hub) move(to func(channel string) *hub) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, ch := range h.channels {
		other := to(name)
		if other == h {
			continue
		}
		for l := range ch.listeners {
			other.listen(l)
		}
		delete(h.channels, name)
	}
	h.signal()
}

func (h *hub) signal() { wake(h.changed) }

// reconnect replaces the present connection: the address leads to another server.
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
	h.signal()
	h.finished.Wait()
}

// run keeps a connection open from the first listener to the last.
func (h *hub) run() {
	for h.isWanted() {
		began := time.Now()
		err := h.connect()
		h.forget()
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
		select {
		case <-time.After(time.Until(began.Add(retrySubscribe))):
		case <-h.open.Done():
		}
	}
}

// isWanted reports whether anybody listens. If not, the loop is over.
func (h *hub) isWanted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.prune()
	h.running = len(h.channels) > 0 // decided with the listeners in view: one that comes later starts a new loop
	return h.running
}

// prune drops the channels that nobody listens to. It is called with mu held, and what depends on it follows with mu held still: who
// comes to a channel that is there knows that it is confirmed.
func (h *hub) prune() {
	for name, ch := range h.channels {
		if len(ch.listeners) == 0 {
			delete(h.channels, name)
		}
	}
}

// forget forgets what the server has confirmed on a connection.
func (h *hub) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.subscribed, h.dropped = nil, nil
	for _, ch := range h.channels {
		ch.confirmed = false
	}
}

// connect opens a connection. It returns an error when the connection has failed, and nil when nobody listens or the hub is closed.
//
// A connection ends with its first error. go-redis would open another one by itself, but with its mutex held, so that Close would have
// to wait, and with one command for all channels, which a server refuses as a whole. (It still does so where a client that [New] was given
// dials without a look at ctx, as go-redis does with TLS; that connection is dropped.)
func (h *hub) connect() error {
	if h.before != nil {
		h.bounded(h.before)
	}
	open := h.client.Subscribe
	if h.sharded {
		open = h.client.SSubscribe
	}
	select {
	case <-h.moved: // of a former connection
	default:
	}
	ps := open(h.open)
	var reading chan struct{} // closed when broken is set
	var broken error
	defer func() {
		_ = ps.Close() // there is nothing left to lose on it
		if reading != nil {
			<-reading
		}
	}()
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		if wanted, err := h.subscribe(ps); !wanted || err != nil {
			return err
		}
		if reading == nil {
			reading = make(chan struct{})
			h.came()
			h.finished.Go(func() {
				broken = h.read(ps)
				close(reading)
			})
		}
		select {
		case <-h.changed:
		case <-h.open.Done():
			return nil
		case <-reading:
			return broken
		case <-h.moved:
			return errMoved
		case <-ping.C:
			if h.before != nil { // it may have had no answer, and nobody else may ask
				h.bounded(h.before)
			}
			if err := h.ping(ps); err != nil {
				return err
			}
		}
	}
}

// ping asks for an answer if nothing has come for a while. If nothing comes then, the way to the server is dead, though the
// connection stands.
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

// came notes that the server is there.
func (h *hub) came() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = time.Now()
}

// errSilent is the end of a connection on which nothing comes.
var errSilent = errors.New("the server does not answer on a connection of subscriptions")

// bounded calls f with a ctx that ends with the hub, or when f has taken too long.
func (h *hub) bounded(f func(context.Context)) {
	ctx, cancel := context.WithTimeout(h.open, defaultTimeout)
	defer cancel()
	f(ctx)
}

// subscribe brings the connection's subscriptions in line with the listeners: one command each, since a server refuses a command
// as a whole if the user may not hear one of its channels. It reports whether there are any listeners.
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

// read gives what comes to the listeners, until the connection is of no use. go-redis panics at what no Redis sends.
func (h *hub) read(ps *redis.PubSub) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the server sent a message that cannot be read: is it Redis? (%v)", r)
		}
	}()
	// A cancelled ctx without a deadline: it does not interrupt a read, but it keeps go-redis from reconnecting after an error. See
	// unlessDone.
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

// isRefused reports whether an error means that the user may not hear a channel or send a PING, or that the server knows no PING. After
// any other, such as MOVED or BUSY, the server may not have taken a subscription that it takes later, or that another one takes.
func isRefused(err redis.Error) bool {
	return strings.HasPrefix(err.Error(), "NOPERM") || strings.HasPrefix(err.Error(), "ERR")
}

// errMoved is the end of a connection to a server that the address has left.
var errMoved = errors.New("the address leads to another server")

// errEnded is the end of a subscription that the server has ended: its slot has moved.
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
