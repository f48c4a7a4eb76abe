//go:build race

package latchsim

const defaultSeeds = 15
