// Package sabotage breaks the library on purpose, builds a simulation with what is broken, and sees whether the simulation
// notices: a simulation that finds nothing may be blind. Only tests use it.
//
//	planted.go   bugs of a table: one text of one file is replaced by another
//	mutation.go  every statement of a package is left out, one at a time
//	mutexes.go   the mutexes of the library note in which order they are taken
//	build.go     builds and runs the simulation
package sabotage
