package main

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// timers holds idle kernel timers. The garbage collector closes those dropped by the pool.
var timers sync.Pool

type kernelTimer struct {
	fd   int
	file *os.File
}

// holdFor blocks for d. [time.Sleep] would last for up to a millisecond longer in a process that is
// busy with connections: while the runtime waits for these, it rounds the rest of a sleep up to
// whole milliseconds. A nanosleep would block its thread, and the runtime may take up to 10 ms to
// let other goroutines use that thread's processor.
func holdFor(d time.Duration) {
	if d <= 0 {
		return
	}
	t, ok := timers.Get().(*kernelTimer)
	if !ok {
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
		if err != nil {
			panic(err) // probably too many open files; the measurements would be wrong
		}
		t = &kernelTimer{fd, os.NewFile(uintptr(fd), "timer")}
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if err := unix.TimerfdSettime(t.fd, 0, &spec, nil); err != nil {
		panic(err)
	}
	var fired [8]byte
	if _, err := t.file.Read(fired[:]); err != nil {
		panic(err)
	}
	timers.Put(t)
}
