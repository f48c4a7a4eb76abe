// Package slotsim plays random schedules with a semaphore: the machines of package core against nodes of package scriptmodel, on
// one clock, with delays, lost messages, nodes that are down, and as many nodes that forget as the quorum allows for.
//
//	go test ./proof/slotsim -seeds 100000      many schedules
//	go test ./proof/slotsim -seed 42           one schedule, with its trace
//	go test ./proof/slotsim                    600 schedules
//	go test ./proof/slotsim -run - -bench .    how busy the slots are, with no fault but silent nodes
//
// It is small: what is not about slots, such as clocks that drift, package coresim checks with a mutex.
package slotsim
