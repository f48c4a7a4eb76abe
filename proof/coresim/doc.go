// Package coresim is the core tier of the simulation: the machines of package core, without a
// goroutine, against the Go model of the scripts (package scriptmodel) on the network of package
// fleet. It checks the invariants of package simulation, under the same names, in many times as
// many schedules. One seed makes one schedule, to the last event.
//
//	go test ./proof/coresim                              a sample of seeds
//	go test ./proof/coresim -run Seeds -seeds 1000000 -timeout 60m
//	go test ./proof/coresim -run Seeds -seeds 1000000 -all     goes on after a seed that fails
//	go test ./proof/coresim -run Seeds -seed 42          one seed, with its trace
//	go test ./proof/planted -run Planted -planted all -v -timeout 60m     builds every planted bug
//
// A process (process.go) is the shell of its machines, like package client, made of events. A
// client's other decisions (the local queue, tickets, hints, renewals by node, pending releases,
// the health of nodes, messages) are package engine's, in both. A process has workers (worker.go),
// calls (call.go) and the lanes to the nodes (lane.go). A finished call recalls its first attempt
// where that is still unsent, as in the shell; at nodes that refuse connections it does so less
// often. Calls are encoded by package wire, as in the shell. The invariants (invariant.go) are
// checked at every script (scripts.go), at every grant, step and end of a call (hold.go), and now
// and then (audit.go, progress.go). The plans (plan.go) are like those of the wire tier. Some have
// semaphores (slots.go) and latches (latch.go) beside other locks; a few have many callers, slots
// or ids (big.go). First attempts wait for a place (admission.go). Bursts and stalls, at nodes that
// take their time, are in overload_test.go. The cost of contention is measured with silent and slow
// nodes, but without other faults (contest_test.go):
//
//	go test ./proof/coresim -run - -bench Contest     the use of the slots of a semaphore
//
// In some plans, Redisson clients (peer.go) take the same locks, even while nodes fail. Only the
// processes of these plans have windows and probes (redisson.go).
//
// After some schedules come times without calls, of seconds to days (idle.go), with clocks that are
// wrong by hours: token counters end.
//
// Package coresim has no re-entrancy and no named owners. Its latches (latch.go) hear no messages.
package coresim
