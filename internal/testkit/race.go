//go:build race

package testkit

import "runtime"

// Race reports whether the race detector is on, which makes each step ten times as long.
const Race = true

// The timers of a synctest bubble share one context of the race detector. Two goroutines that
// receive from expired timers at the same time use it at the same time, and the detector crashes in
// code of its own (Go 1.26; Go issue 78156). On one processor it finds the same races.
func init() { runtime.GOMAXPROCS(1) }
