//go:build unix && !linux

package main

import (
	"os"
	"syscall"
	"time"
)

// bootTime returns the time of the wall clock, in ns. On these systems it is the only clock that
// all processes share and that runs while the machine is suspended.
func bootTime() int64 { return time.Now().UnixNano() }

// These systems cannot adopt descendants that leave their process group, and cannot end a process
// together with its parent.

const adopts = false

func adopt() {}

func rename(string) {}

func hurry() {}

func dieWith(*syscall.SysProcAttr) {}

func self() (string, error) { return os.Executable() }

func descendants(int) []int { return nil }
