package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// usage is the use of resources by this process and some servers since they began.
type usage struct {
	mallocs, bytes uint64
	client, server time.Duration // of processors
	reads, writes  uint64        // system calls of this process; 0 if the kernel counts none
}

func usageNow(servers []int) usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := usage{mallocs: m.Mallocs, bytes: m.TotalAlloc}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err == nil {
		u.client = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	}
	for _, pid := range servers {
		u.server += processTime(pid)
	}
	if io, err := os.ReadFile("/proc/self/io"); err == nil {
		u.reads, u.writes = parseIO(string(io))
	}
	return u
}

func (u usage) since(before usage) usage {
	return usage{u.mallocs - before.mallocs, u.bytes - before.bytes, u.client - before.client, u.server - before.server,
		u.reads - before.reads, u.writes - before.writes}
}

func (u usage) plus(v usage) usage {
	return usage{u.mallocs + v.mallocs, u.bytes + v.bytes, u.client + v.client, u.server + v.server, u.reads + v.reads, u.writes + v.writes}
}

// each is the share of one of n pairs.
func (u usage) each(n float64) figures {
	f := figures{
		allocs:    float64(u.mallocs) / n,
		kilobytes: float64(u.bytes) / 1000 / n,
		clientCPU: float64(u.client) / 1000 / n,
	}
	if u.server > 0 {
		f[serverCPU] = float64(u.server) / 1000 / n
	}
	if u.reads+u.writes > 0 {
		f[reads], f[writes] = float64(u.reads)/n, float64(u.writes)/n
	}
	return f
}

// parseIO reads the number of reads and writes of a process, and of similar calls, from its
// /proc/PID/io. This costs nothing during the measurement, where strace would slow down what it
// counts.
func parseIO(text string) (reads, writes uint64) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			continue
		}
		switch key {
		case "syscr":
			reads = n
		case "syscw":
			writes = n
		}
	}
	return reads, writes
}

// processTime is the processor time of a process and of its living children: PostgreSQL has one for
// each connection. It is 0 where there is no /proc.
func processTime(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	total := parseStat(string(stat))
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return total
	}
	for _, child := range strings.Fields(string(children)) {
		if n, err := strconv.Atoi(child); err == nil {
			total += processTime(n)
		}
	}
	return total
}

// tick is the unit of times in /proc: USER_HZ is 100 on every Linux that Go runs on.
const tick = 10 * time.Millisecond

// parseStat returns the user and system time in a /proc/PID/stat. The name of the program, in
// brackets, may have spaces.
func parseStat(stat string) time.Duration {
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	if len(fields) < 13 {
		return 0
	}
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err1 != nil || err2 != nil {
		return 0
	}
	return time.Duration(user+system) * tick
}
