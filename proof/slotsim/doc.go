// Package slotsim plays random schedules with a semaphore: the machines of package core against
// nodes of package scriptmodel, on one clock. Messages are delayed or lost, nodes are down, and as
// many nodes forget as the quorum allows for.
//
//	go test ./proof/slotsim -seeds 100000      many schedules
//	go test ./proof/slotsim -seed 42           one schedule, with its trace
//	go test ./proof/slotsim                    600 schedules
//	go test ./proof/slotsim -run - -bench .    the use of the slots, without faults but silent nodes
//
// Package coresim checks everything that is not about slots, such as clocks that drift, with a
// mutex.
package slotsim
