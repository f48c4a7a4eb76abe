// Package engine has the decisions of a client beyond a single call, without a clock, a goroutine,
// a mutex or a connection. Its callers, package client and the simulation coresim, give it the time
// and carry out its results.
//
//	clocks.go     the clocks of the nodes, and the tickets of calls
//	localqueue.go the callers of one lock in this process, of which a few go to the nodes
//	ticket.go     the ticket of an attempt, and what the nodes made of it
//	hints.go      the least fencing token to ask for
//	health.go     which nodes are down, and their round trips
//	renewals.go   the renewals of a client's holds, grouped by node
//	pending.go    pending releases: sent again until the node has confirmed them
//	ended.go      the calls that have ended: their leftovers may be released
//	redisson.go   Redisson's clients at the same locks: their share
//	latch.go      a look at a latch
//	recall.go     first attempts that were never sent
//	messages.go   the messages that wake waiters
//
// Times count from an arbitrary moment, by a clock that never steps. An own time is a client's wall
// clock at its start plus the time since, in µs.
package engine
