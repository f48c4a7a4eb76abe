package main

import (
	"errors"
	"syscall"
	"time"
)

// holdFor lasts for d. [time.Sleep] would last for up to a millisecond longer in a process that is busy with
// connections: whenever the runtime waits for these, it rounds what is left of a sleep up to whole milliseconds.
func holdFor(d time.Duration) {
	left := syscall.NsecToTimespec(int64(d))
	for errors.Is(syscall.Nanosleep(&left, &left), syscall.EINTR) {
	}
}
