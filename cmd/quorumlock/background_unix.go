//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// readInBackground makes a read from the terminal fail while this process is in its background. By
// default, the kernel would stop the process.
func readInBackground() { signal.Ignore(syscall.SIGTTIN) }
