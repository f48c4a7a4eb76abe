//go:build race

package election_test

// defaultSeeds is how many hostile schedules a plain run plays: the race detector makes them ten times slower.
const defaultSeeds = 2
