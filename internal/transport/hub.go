package transport

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// hub shares one pub/sub connection among all that listen at a node. The connection is opened for
// the first listener and closed behind the last.
type hub struct {
	client  redis.UniversalClient
	sharded bool // its channels are those of one slot of a cluster

	mu        sync.Mutex
	closed    bool
	channels  map[string]*channel
	changed   chan struct{} // wakes the running loop; capacity 1
	running   bool
	finished  sync.WaitGroup
	subscribe context.Context // cancelled by close
	cancel    context.CancelFunc
}

// channel is one subscription and its listeners.
type channel struct {
	listeners map[*listener]struct{}
	confirmed bool // by the server, on the present connection
}

type listener struct{ heard func(message string) }

// retrySubscribe is how long the hub waits after a failed subscription.
const retrySubscribe = 200 * time.Millisecond

func (h *hub) init(client redis.UniversalClient) {
	h.client = client
	h.channels = make(map[string]*channel)
	h.changed = make(chan struct{}, 1)
	h.subscribe, h.cancel = context.WithCancel(context.Background())
}

// Listen calls heard with every message on a channel, and with an empty message whenever messages may
// have been missed: once the subscription is established, and again after a lost connection. heard is called
// in the order of the messages, one call at a time, and must not block. It may be called once more
// while stop runs, and never after. Listen itself does no I/O.
func (n *Node) Listen(name string, heard func(message string)) (stop func()) {
	if n.err != nil {
		return func() {}
	}
	return n.hubFor(name).listen(name, heard)
}

func (h *hub) listen(name string, heard func(string)) (stop func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return func() {}
	}
	ch := h.channels[name]
	if ch == nil {
		ch = &channel{listeners: make(map[*listener]struct{})}
		h.channels[name] = ch
	}
	l := &listener{heard}
	ch.listeners[l] = struct{}{}
	if ch.confirmed {
		heard("") // it has missed what was published before it came
	}
	if !h.running {
		h.running = true
		h.finished.Go(h.run)
	}
	h.signal()
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(ch.listeners, l)
		h.signal()
	}
}

func (h *hub) signal() {
	select {
	case h.changed <- struct{}{}:
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

// run owns the connection from the first listener to the last.
func (h *hub) run() {
	open := h.client.Subscribe
	if h.sharded {
		open = h.client.SSubscribe
	}
	ps := open(h.subscribe)
	defer ps.Close() //nolint:errcheck // there is nothing left to lose on it
	subscribed := make(map[string]bool)
	failed := false
	var messages <-chan any
	var retry <-chan time.Time // set while a subscription has failed
	for more := h.sync(ps, subscribed, &failed); more; {
		if messages == nil && !failed {
			messages = ps.ChannelWithSubscriptions() // from here on it reconnects, and subscribes again, by itself
		}
		if failed && retry == nil {
			retry = time.After(retrySubscribe)
		}
		select {
		case <-h.changed:
			more = h.sync(ps, subscribed, &failed)
		case <-retry:
			retry = nil
			more = h.sync(ps, subscribed, &failed)
		case m, open := <-messages:
			if !open { // the client was closed
				h.ended()
				return
			}
			h.dispatch(m)
		}
	}
}

// ended makes the next listener start a new loop.
func (h *hub) ended() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running = false
	for _, ch := range h.channels {
		ch.confirmed = false
	}
}

// sync brings the connection's subscriptions in line with the listeners, and tries all of them again if
// it failed the last time. It reports whether there are any listeners: if not, the loop is over.
func (h *hub) sync(ps *redis.PubSub, subscribed map[string]bool, failed *bool) (more bool) {
	var add, drop []string
	h.mu.Lock()
	for name, ch := range h.channels {
		if len(ch.listeners) == 0 {
			delete(h.channels, name)
		} else if !subscribed[name] {
			add = append(add, name)
			subscribed[name] = true
		}
	}
	for name := range subscribed {
		if h.channels[name] == nil {
			drop = append(drop, name)
			delete(subscribed, name)
		}
	}
	more = len(h.channels) > 0
	h.running = more // decided with the listeners in view: one that comes later starts a new loop
	h.mu.Unlock()
	if !more {
		return false
	}

	ctx, cancel := context.WithTimeout(h.subscribe, defaultTimeout)
	defer cancel()
	subscribe, unsubscribe := ps.Subscribe, ps.Unsubscribe
	if h.sharded {
		subscribe, unsubscribe = ps.SSubscribe, ps.SUnsubscribe
	}
	if len(drop) > 0 {
		_ = unsubscribe(ctx, drop...) // a failure ends the connection; the next one is opened without these
	}
	if *failed {
		add = slices.Collect(maps.Keys(subscribed))
	}
	if len(add) > 0 {
		*failed = subscribe(ctx, add...) != nil
	}
	return true
}

func (h *hub) dispatch(m any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch m := m.(type) {
	case *redis.Subscription:
		ch := h.channels[m.Channel]
		if ch == nil {
			return
		}
		ch.confirmed = m.Kind == "subscribe" || m.Kind == "ssubscribe"
		if ch.confirmed {
			ch.tell("")
		}
	case *redis.Message:
		if ch := h.channels[m.Channel]; ch != nil {
			ch.tell(m.Payload)
		}
	}
}

func (ch *channel) tell(message string) {
	for l := range ch.listeners {
		l.heard(message)
	}
}
