package main

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// timers has timers of the kernel that nobody uses now. One that is collected as garbage is closed.
var timers sync.Pool

type kernelTimer struct {
	fd   int
	file *os.File
}

// holdFor lasts for d. [time.Sleep] would last for up to a millisecond longer in a process that is busy with
// connections: whenever the runtime waits for these, it rounds what is left of a sleep up to whole milliseconds. A
// nanosleep would block its thread, and the runtime may take 10 ms until it gives that thread's processor to others.
func holdFor(d time.Duration) {
	if d <= 0 {
		return
	}
	t, ok := timers.Get().(*kernelTimer)
	if !ok {
		fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
		if err != nil {
			panic(err) // too many open files: no figure would be right
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
