package quorum

import (
	"syscall"
	"time"
	"unsafe"
)

// bootClock returns CLOCK_BOOTTIME, which is the monotonic clock with the time in which the machine was suspended, and never steps. It
// returns nil where the kernel or a filter of system calls refuses it.
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
