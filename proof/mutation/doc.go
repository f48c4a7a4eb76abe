// Package mutation breaks the library on purpose, builds a simulation with the broken library, and
// checks that the simulation notices: a simulation that finds nothing may be blind. Only tests use
// it.
//
//	bug.go       plants bugs: each replaces an expression or statement, or a text of a script
//	mutation.go  leaves out every statement of a package, one at a time
//	mutexes.go   replaces the mutexes of the library by ones that check their order
//	scores.go    compares the share of noticed mutations with scores.txt
//	build.go     builds and runs simulations and tests
package mutation
