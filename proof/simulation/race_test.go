//go:build race

package simulation

const defaultSeeds = 60 // each takes ten times as long
