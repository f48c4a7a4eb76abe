//go:build !race

package testkit

// Race reports whether the race detector is on, which makes each step ten times as long.
const Race = false
