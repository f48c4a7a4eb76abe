//go:build !race

package election_test

// defaultSeeds is how many hostile schedules a plain run plays.
const defaultSeeds = 12
