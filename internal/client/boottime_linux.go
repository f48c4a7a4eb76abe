package client

import (
	"syscall"
	"time"
	"unsafe"
)

// bootClock returns a reader of CLOCK_BOOTTIME: the monotonic clock plus the time of all suspends.
// This clock never steps. bootClock returns nil if the kernel or a seccomp filter refuses the
// system call.
func bootClock() func() time.Duration {
	if readBootTime() == 0 {
		return nil
	}
	return readBootTime
}

// readBootTime returns 0 after an error.
func readBootTime() time.Duration {
	const clockBootTime = 7
	var t syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBootTime, uintptr(unsafe.Pointer(&t)), 0)
	return time.Duration(t.Nano())
}
