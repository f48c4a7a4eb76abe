// Package mutation breaks the library on purpose, builds a simulation with the broken library, and sees whether the simulation
// notices: a simulation that finds nothing may be blind. Only tests use it.
//
//	planted.go   plants the bugs of a table: each replaces one text of one file by another
//	mutation.go  leaves out every statement of a package, one at a time
//	mutexes.go   replaces the mutexes of the library by ones that check in which order they are taken
//	build.go     builds and runs the simulation
package mutation
