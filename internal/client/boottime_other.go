//go:build !linux

package client

import "time"

// bootClock returns nil: only the wall clock counts suspends here, so a step forward counts as a
// suspend.
func bootClock() func() time.Duration { return nil }
