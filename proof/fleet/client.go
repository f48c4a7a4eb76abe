package fleet

import (
	"errors"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// Clock is the reading of a client's clocks.
type Clock struct {
	// Since the beginning of the schedule, at the client's rate, without suspends.
	Mono time.Duration
	Boot time.Duration    // with suspends
	Wall scriptmodel.Time // may be wrong, and is stepped
}

// Client is a process that uses locks. It must do the same whenever it is given the same events.
type Client interface {
	// Step handles an event. Its effects are calls of the methods of to.
	Step(now Clock, e Event, to *Effects)
}

// EventKind is the kind of an event of a client.
type EventKind uint8

// The kinds of events.
const (
	Started      EventKind = iota // the first event
	Woke                          // it is the time that the client asked for
	Replied                       // a call has an outcome
	Told                          // a message arrived on a channel of the client
	Subscribed                    // messages of the channel come from now on
	Unsubscribed                  // the client's subscriptions have ended: it must renew them
	Connected                     // a blocked lane can send again
)

// Event is something that happens to a client.
type Event struct {
	Kind    EventKind
	Node    int
	Lane    int        // Replied, Connected
	Call    int        // Replied: the number that the client gave the call
	Reply   wire.Reply // Replied
	Channel string     // Told, Subscribed, and Unsubscribed if just one subscription has failed
	Text    string     // Told
}

// ErrBroken is the outcome of a call on a connection that has ended: the call may have run, or may
// run later. ErrRefused is the outcome of a call to a node that is down, and ErrNoScript that of a
// call to a node that does not know the script: neither has run.
var (
	ErrBroken   = errors.New("fleet: the connection is broken")
	ErrRefused  = errors.New("fleet: the connection is refused")
	ErrNoScript = errors.New("NOSCRIPT fleet: the node does not know the script")
)

// Effects collects the effects of one Step, and is valid during that Step.
type Effects struct {
	world  *World
	client int
}

// Lanes is the number of connections of a client to each node.
const Lanes = 2

// Send sends a call to a node, after the calls sent before on this lane. The reply has the same
// number. The call must not change afterwards.
func (to *Effects) Send(node, lane, number int, c *wire.Call) {
	to.world.send(to.client, node, lane, number, c, false)
}

// SendSource is Send with the source of the script. The node then knows the script.
func (to *Effects) SendSource(node, lane, number int, c *wire.Call) {
	to.world.send(to.client, node, lane, number, c, true)
}

// Wake asks for an event Woke at a time of the client's monotonic clock. Several may be pending.
func (to *Effects) Wake(at time.Duration) {
	w := to.world
	e := w.event(wakeClient, w.clients[to.client].clock.when(at))
	e.client = to.client
	w.push(e)
}

// Reconnect abandons a connection to a node. Its pending calls never get an outcome.
func (to *Effects) Reconnect(node, lane int) { to.world.link(to.client, node, lane).renew() }

// Connects reports whether a client has a connection to a node, or can open one. A frozen node
// accepts no connection. If not, the client sends nothing on this lane until the event Connected.
func (to *Effects) Connects(node, lane int) bool { return to.world.connects(to.client, node, lane) }

// Subscribe asks for the messages of a channel at a node.
func (to *Effects) Subscribe(node int, channel string) { to.world.subscribe(to.client, node, channel) }

// Unsubscribe ends a subscription at once. Messages that are on their way still arrive.
func (to *Effects) Unsubscribe(node int, channel string) {
	l := to.world.link(to.client, node, 0)
	if i := slices.Index(l.channels, channel); i >= 0 {
		l.channels = slices.Delete(l.channels, i, i+1)
		to.world.nodes[node].model.Receivers[channel]--
	}
}

// Random returns a number below n that depends on the seed.
func (to *Effects) Random(n int64) int64 { return to.world.random.Int64N(n) }

// clock is a clock with a rate, which shows zero at the beginning of the schedule.
type clock struct {
	rate  float64
	slept time.Duration // of its own time: suspends, which it does not show
}

func (c clock) at(now time.Duration) time.Duration {
	if c.rate == 1 {
		return now - c.slept
	}
	return time.Duration(float64(now)*c.rate) - c.slept
}

// when is the first instant at which the clock shows so much.
func (c clock) when(shown time.Duration) time.Duration {
	if c.rate == 1 {
		return shown + c.slept
	}
	now := time.Duration(float64(shown+c.slept) / c.rate)
	for c.at(now) < shown {
		now++
	}
	return now
}
