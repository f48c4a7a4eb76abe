// Package traces plays scenarios against the machines of package core and the Go model of the
// scripts, and compares what happens with files that a person can read (after the data-driven tests
// of go.etcd.io/raft, package rafttest). A file in testdata has commands at the left margin, each
// followed by its indented effects:
//
//	nodes N               begins, with N empty nodes and a quorum of a majority
//	A ahead D             the wall clock of client A is ahead; any capital letter is a client
//	A lock                client A begins a call of Lock
//	A trylock             client A begins a call of TryLock
//	A unlock, A extend    the holder's calls
//	A cancel              the caller gives up
//	run A [n1 ...]        the nodes (all without a list) run what A has sent, and A gets the replies
//	lose A n1 ...         the nodes run it, the replies are lost, and A sees a timeout
//	delay A n1 ...        A sees a timeout, and the nodes run it later: see thaw
//	thaw n1 ...           the nodes run what was delayed
//	wait D                time passes; machines whose time has come take a step
//	kill A                the process ends, and sends nothing
//	forget n1 ...         the nodes restart without their data
//
// In the effects, A.1 is the owner of A's first attempt, and A/1 that of its successor, to which the
// nodes hand the lock. T1 is the lowest token of the scenario.
//
//	go test ./proof/traces -update     writes the effects anew
package traces
