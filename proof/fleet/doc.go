// Package fleet plays schedules in virtual time: clients that are state machines, nodes that are models of Redis
// servers (package scriptmodel), and a network between them that delays and loses what it carries. It is the base of the
// core tier of the simulation.
//
// A [World] has no goroutine and reads no clock. Everything that happens is an [Event] in a queue, ordered by
// its time; one seed makes one schedule. A [Client] gets the events that concern it, one after another, and answers each
// with [Effects]: what to send, and when to be woken.
//
// # The network
//
// A client has one connection to each node. Calls on one connection arrive in order, and so do the replies. Each message
// has a delay of its own; some take much longer, and hold up those behind them. A connection can go dark, in either
// direction: nothing arrives any more, and nobody is told. The client notices that by the time, and takes a
// new connection with Effects.Reconnect. What is still under way on the old one may arrive later, and overtakes or is
// overtaken by what the new one carries; its replies are lost. If a node goes down, its connections end, and the
// client learns of each call that was under way that its outcome is unknown.
//
// A frozen node accepts no connection. When it thaws, it runs the requests on its old connections, closed ones included; the delay
// differs between connections.
//
// Messages of pub/sub come on another connection. It ends with the node, too, and the client is told.
//
// # Faults
//
// A [Fault] happens to a node, to a client or between the two: see the kinds of it.
package fleet
