package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// bootTime returns the time since the machine was booted, in ns, including the time in which it was
// suspended.
func bootTime() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(fmt.Sprintf("no clock: %v", err)) // every Linux that Go supports has it
	}
	return t.Nano()
}

// adopts reports whether adopt works.
const adopts = true

// adopt makes this process the parent of every descendant whose parent ends, even outside of its
// group or session.
func adopt() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// rename sets the name of this process in process listings.
func rename(name string) {
	if p, err := unix.BytePtrFromString(name); err == nil {
		_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(p)), 0, 0, 0)
	}
}

// dieWith makes the kernel kill the process when the thread that starts it ends.
func dieWith(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// hurry raises the priority of this process, if the user has the permission. It does not affect
// processes that have started before.
func hurry() {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range threads {
		if id, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, -20)
		}
	}
}

// self is the path of this program, even if its file was replaced.
func self() (string, error) { return "/proc/self/exe", nil }

// descendants returns the process IDs of all descendants of a process. It may miss some that start
// or end during the call: callers repeat it until there are none.
func descendants(pid int) (all []int) {
	children := childrenOf
	if _, err := os.Stat("/proc/self/task/" + strconv.Itoa(os.Getpid()) + "/children"); errors.Is(err, fs.ErrNotExist) {
		parents := allParents() // a kernel without CONFIG_PROC_CHILDREN
		children = func(pid int) []int { return parents[pid] }
	}
	for next := []int{pid}; len(next) > 0; {
		some := children(next[0])
		next = append(next[1:], some...)
		all = append(all, some...)
	}
	return all
}

// childrenOf reads the children of a process from /proc.
func childrenOf(pid int) (all []int) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	threads, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, t := range threads {
		list, err := os.ReadFile(dir + "/" + t.Name() + "/children")
		if err != nil {
			continue
		}
		for _, f := range bytes.Fields(list) {
			if child, err := strconv.Atoi(string(f)); err == nil {
				all = append(all, child)
			}
		}
	}
	return all
}

// allParents returns the children of every process.
func allParents() map[int][]int {
	children := make(map[int][]int)
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + e.Name() + "/stat")
		if err != nil {
			continue
		}
		// The name of the program is in parentheses, and may contain parentheses itself.
		f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(f) < 2 {
			continue
		}
		if parent, err := strconv.Atoi(string(f[1])); err == nil {
			children[parent] = append(children[parent], pid)
		}
	}
	return children
}
