//go:build unix && !linux

package main

import (
	"os"
	"syscall"
	"time"
)

// bootTime returns the time of the wall clock, in ns: the one clock that all processes share, on all systems, and that goes on while
// the machine is suspended.
func bootTime() int64 { return time.Now().UnixNano() }

// These systems have no way to keep descendants that leave their process group, or to have a process die with its parent.

const adopts = false

func adopt() {}

func rename(string) {}

func hurry() {}

func dieWith(*syscall.SysProcAttr) {}

func self() (string, error) { return os.Executable() }

func descendants(int) []int { return nil }
