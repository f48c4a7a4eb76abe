// Package slottier plays random schedules with a semaphore: the machines of package core against nodes of package scriptmodel, on
// one clock, with delays, lost messages, nodes that are down, and as many nodes that forget as the quorum allows for.
//
//	go test ./internal/slottier -seeds 100000      many schedules
//	go test ./internal/slottier -seed 42           one schedule, with its trace
//	go test ./internal/slottier -planted all       does it notice planted bugs?
//	go test ./internal/slottier -run - -bench .    how busy the slots are, with no fault but silent nodes
//
// It is small: what is not about slots, such as clocks that drift, package coretier checks with a mutex.
package slottier
