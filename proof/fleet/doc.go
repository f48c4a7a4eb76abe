// Package fleet plays schedules in virtual time: clients that are state machines, nodes that are
// models of Redis servers (package scriptmodel), and a network that delays and loses messages. It
// is the base of the core tier of the simulation.
//
// A [World] has no goroutine and reads no clock. Each event is in a queue, ordered by its time. One
// seed makes one schedule. A [Client] handles its events ([Event]) one after another. The [Effects]
// of each are calls to send and times to wake at.
//
// # The network
//
// A client has [Lanes] connections to each node. Calls on one connection arrive in order, and so do
// replies. Each message has its own delay; some take much longer, and delay those behind them. A
// connection can go dark, in either direction: nothing arrives any more, and nobody is notified.
// The client notices by a timeout, and opens a new connection with Effects.Reconnect. Calls on the
// old one may still arrive, before or after those of the new one; their replies are lost. If a node
// goes down, its connections end. Each pending call then fails with [ErrBroken].
//
// A frozen node accepts no connection. When it thaws, it runs the requests on its old connections,
// closed ones included; the delay differs between connections.
//
// Messages of pub/sub come on another connection. It ends with the node, too, and the client gets
// the event Unsubscribed.
//
// # Faults
//
// A [Fault] happens to a node, to a client or between the two. [FaultKind] has the kinds.
//
// # Latches
//
// [IsSet] checks the calls on a latch, for both tiers.
package fleet
