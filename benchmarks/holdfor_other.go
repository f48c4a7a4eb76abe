//go:build !linux

package main

import "time"

// holdFor blocks for d, or up to a millisecond longer.
func holdFor(d time.Duration) { time.Sleep(d) }
