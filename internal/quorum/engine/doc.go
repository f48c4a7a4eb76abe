// Package engine has the decisions of a client that are no business of a single call: without a
// clock, a goroutine, a mutex or a connection. Its callers give it the time, and carry out what it
// returns: package quorum, which ships, and the simulations coresim and slotsim.
//
//	clocks.go     the clocks of the nodes, and the tickets of calls
//	localqueue.go the callers of one lock in this process, of which a few go to the nodes
//	ticket.go     the ticket of an attempt, and what the nodes made of it
//	hints.go      the least fencing token to ask for
//	health.go     which nodes are down, and their round trips
//	renewals.go   the renewals of a client's holds, grouped by node
//	retries.go    pending releases: sent again until the node has confirmed them
//	ended.go      the calls that have ended, whose leftovers may be taken back
//	recall.go     first attempts that were never sent
//	messages.go   the messages that wake waiters
//
// Times are core.Time's: since an arbitrary moment, by a clock that never steps. An own time is a
// client's wall clock of its beginning plus the time since, in µs.
package engine
