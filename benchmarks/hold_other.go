//go:build !linux

package main

import "time"

// hold lasts for d, or a little longer.
func hold(d time.Duration) { time.Sleep(d) }
