//go:build unix

package main

import (
	"os"
	"slices"
	"strconv"
	"syscall"
)

// pidVariables hold the ID of the process to which systemd passes sockets, or from which it expects
// watchdog messages. The command does this work in place of run, so its own ID must stand there.
var pidVariables = []string{"LISTEN_PID", "WATCHDOG_PID"}

// renumberArgument is the first argument of a process that puts its own number into the environment
// and becomes the command. The number of run, and the path and the arguments of the command follow.
const renumberArgument = "lease-renumber"

// renumbered returns a job that is started through that process, if the environment names this one.
func (j job) renumbered() (job, error) {
	own := strconv.Itoa(os.Getpid())
	if !slices.ContainsFunc(pidVariables, func(name string) bool { return os.Getenv(name) == own }) {
		return j, nil
	}
	path, err := self()
	if err != nil {
		return j, err
	}
	j.args = append([]string{watchdogName, renumberArgument, own, j.path}, j.args...)
	j.path = path
	return j, nil
}

// isRenumber reports whether this process is one that becomes a command.
func isRenumber(args []string) bool { return len(args) > 4 && args[1] == renumberArgument }

// renumber becomes the command, with this process's number in the environment. It returns the exit
// status of a failure.
func renumber(args []string) int {
	for _, name := range pidVariables {
		if os.Getenv(name) == args[2] {
			_ = os.Setenv(name, strconv.Itoa(os.Getpid())) // the name is valid
		}
	}
	err := syscall.Exec(args[3], args[4:], os.Environ())
	failed := cannotRun(&os.PathError{Op: "exec", Path: args[3], Err: err})
	complain(os.Stderr, failed)
	return failed.(*statusError).status //nolint:errorlint // it is never wrapped
}
