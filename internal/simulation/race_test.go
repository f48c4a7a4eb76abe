//go:build race

package simulation

const defaultSeeds = 100 // each takes ten times as long
