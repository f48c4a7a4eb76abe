package main

import (
	"errors"
	"syscall"
	"time"
)

// hold lasts for d. [time.Sleep] would last for up to a millisecond longer while the process is busy with connections,
// since the runtime waits for whole milliseconds there: more for a design that does its work meanwhile.
func hold(d time.Duration) {
	left := syscall.NsecToTimespec(int64(d))
	for errors.Is(syscall.Nanosleep(&left, &left), syscall.EINTR) {
	}
}
