package main

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// timers are timers of the kernel, for the next to hold. One that the garbage collector takes is closed.
var timers sync.Pool

type kernelTimer struct {
	fd   int
	file *os.File
}

// holdFor lasts for d. [time.Sleep] would last for up to a millisecond longer in a process that is busy with
// connections: whenever the runtime waits for these, it rounds what is left of a sleep up to whole milliseconds. A
// nanosleep would keep a processor from the other goroutines, for 10 ms if the process has little to do.
func holdFor(d time.Duration) {
	if d <= 0 {
		return
	}
	t, ok := timers.Get().(*kernelTimer)
	if !ok {
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
		if err != nil {
			time.Sleep(d)
			return
		}
		t = &kernelTimer{fd, os.NewFile(uintptr(fd), "timer")}
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	var fired [8]byte
	if unix.TimerfdSettime(t.fd, 0, &spec, nil) != nil {
		time.Sleep(d)
	} else if _, err := t.file.Read(fired[:]); err != nil {
		time.Sleep(d)
	}
	timers.Put(t)
}
