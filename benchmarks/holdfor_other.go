//go:build !linux

package main

import "time"

// holdFor lasts for d, or up to a millisecond longer.
func holdFor(d time.Duration) { time.Sleep(d) }
