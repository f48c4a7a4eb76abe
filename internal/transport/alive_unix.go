//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd || solaris || illumos

package transport

import "syscall"

// looksAtIdle reports whether a connection that is idle can be looked at before it is used, by go-redis and by isOpen.
const looksAtIdle = true

// isOpen reports whether a socket is open and has nothing to read. Nobody has asked the server for anything.
func isOpen(fd uintptr) bool {
	var b [1]byte
	_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return err == syscall.EAGAIN || err == syscall.EWOULDBLOCK || err == syscall.EINTR
}
