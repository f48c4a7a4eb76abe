package fleet

import (
	"errors"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// Clock is what a client's clocks show.
type Clock struct {
	Mono time.Duration    // since the beginning of the schedule, at the client's rate, without suspends
	Boot time.Duration    // with suspends
	Wall scriptmodel.Time // may be wrong, and is stepped
}

// Client is a process that uses locks. It must do the same whenever it is given the same events.
type Client interface {
	// Step takes an event. What it wants done, it says by calling the methods of to.
	Step(now Clock, e Event, to *Effects)
}

// EventKind says what happened to a client.
type EventKind uint8

// The kinds of events.
const (
	Started      EventKind = iota // the first event
	Woke                          // it is the time that the client asked for
	Replied                       // a call has an outcome
	Told                          // a message was published on a channel that the client subscribes to
	Subscribed                    // messages of the channel come from now on
	Unsubscribed                  // the connection for messages has ended: none come until the client subscribes again
	Connected                     // a blocked lane can send again
)

// Event is something that happens to a client.
type Event struct {
	Kind    EventKind
	Node    int
	Lane    int        // Replied, Connected
	Call    int        // Replied: the number that the client gave the call
	Reply   wire.Reply // Replied
	Channel string     // Told, Subscribed
	Text    string     // Told
}

// ErrBroken is the outcome of a call whose connection has ended: it may have run or may run yet. ErrRefused is that of
// a call to a node that is down: it does not run. ErrNoScript is that of a call to a node that does not know the script.
var (
	ErrBroken   = errors.New("fleet: the connection is broken")
	ErrRefused  = errors.New("fleet: the connection is refused")
	ErrNoScript = errors.New("NOSCRIPT fleet: the node does not know the script")
)

// Effects is what a client wants done. It is valid during one Step.
type Effects struct {
	world  *World
	client int
}

// Lanes is how many connections a client has to each node.
const Lanes = 2

// Send sends a call to a node, after those that were sent before on this lane. The number comes back with the reply. The
// call must not change after that.
func (to *Effects) Send(node, lane, number int, c *wire.Call) {
	to.world.send(to.client, node, lane, number, c, false)
}

// SendSource is Send with the source of the script along, which the node then knows.
func (to *Effects) SendSource(node, lane, number int, c *wire.Call) {
	to.world.send(to.client, node, lane, number, c, true)
}

// Wake asks for an event Woke once the client's monotonic clock shows at. A client may ask for several.
func (to *Effects) Wake(at time.Duration) {
	w := to.world
	e := w.event(wakeClient, w.clients[to.client].clock.when(at))
	e.client = to.client
	w.push(e)
}

// Reconnect gives up a connection to a node. The outcome of what is under way there is never told.
func (to *Effects) Reconnect(node, lane int) { to.world.link(to.client, node, lane).renew() }

// Connects reports whether a client has a connection to a node, or can make one. A frozen node accepts no connection. The client
// then sends nothing on this lane until the event Connected.
func (to *Effects) Connects(node, lane int) bool { return to.world.connects(to.client, node, lane) }

// Subscribe asks for the messages of a channel at a node.
func (to *Effects) Subscribe(node int, channel string) { to.world.subscribe(to.client, node, channel) }

// Random returns a number below n that depends on the seed.
func (to *Effects) Random(n int64) int64 { return to.world.random.Int64N(n) }

// clock is a clock with a rate, which shows zero at the beginning of the schedule.
type clock struct {
	rate  float64
	slept time.Duration // of its own time, that it does not show
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
