//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The watchdog is a process between run and the command. run holds the lease, and sends the
// watchdog its new end after every renewal. The watchdog starts the command, and ends the command
// before the last end that it received, even if run is stopped, killed or blocked. On Linux the
// watchdog is the parent of all descendants of the command.

// watchdogArgument is the first argument of the watchdog's process. The file descriptors of its
// orders and reports follow. They are above those that run has inherited: the command inherits
// these under their own numbers, such as a log of the shell, or the pipes of make's jobserver.
const watchdogArgument = "lease-watchdog"

// watchdogName is the name of the watchdog in process listings. It differs from the tool's, so that
// a kill by that name does not hit the watchdog.
const watchdogName = "lease-watchdog"

// isWatchdog reports whether this process is a watchdog.
func isWatchdog(args []string) bool { return len(args) == 4 && args[1] == watchdogArgument }

func init() {
	// The kernel kills the command when the thread that started it ends: that must be the main
	// thread.
	runtime.LockOSThread()
}

// look is the longest sleep of the watchdog: timers do not run while the machine is suspended.
const look = 100 * time.Millisecond

// passedOn are the signals that run passes on to the command.
var passedOn = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// watchdog is the state of a watchdog. All times are on the clock of bootTime, in ns.
type watchdog struct {
	start
	reports *json.Encoder
	pid     int    // of the command and its process group
	ended   bool   // the command has ended; descendants may be left
	status  int    // of the command
	left    int    // how often processes were left after the end of the command
	why     string // the reason why the command is being ended; empty if it is not
	termAt  int64  // the time of SIGTERM; 0 before

	own map[syscall.Signal]int64 // signals that the watchdog itself received, with their times
	due []dueSignal              // to be passed on
}

// dueSignal is a signal that run has received for the command. It waits for a moment, because the
// command must not get a signal twice. If the watchdog, in a process group of its own, receives the
// signal itself, then all processes do, as from systemd or at a shutdown.
type dueSignal struct {
	signal syscall.Signal
	at     int64 // the time to pass it on
	late   bool  // it was delayed once, since the watchdog was late
}

const (
	ownSoon   = int64(50 * time.Millisecond) // after run: limit for the same signal at the watchdog
	ownBefore = int64(time.Second)           // before run: the same limit
)

// watch is the watchdog's program. It returns the exit status.
func watch() int {
	rename(watchdogName)
	adopt()
	// The watchdog survives signals that a terminal or a user sends to all. Ignored signals stay
	// ignored for the command.
	drop := make(chan os.Signal, 16)
	for _, s := range append(passedOn, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGPIPE) {
		if !signal.Ignored(s) {
			signal.Notify(drop, s)
		}
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	in, inErr := strconv.Atoi(os.Args[2])
	out, outErr := strconv.Atoi(os.Args[3])
	if inErr != nil || outErr != nil {
		return exitRunFailed // nobody but run starts it
	}
	unix.CloseOnExec(in)
	unix.CloseOnExec(out)
	orders := readOrders(os.NewFile(uintptr(in), "orders"))
	w := &watchdog{reports: json.NewEncoder(os.NewFile(uintptr(out), "reports")), own: make(map[syscall.Signal]int64)}
	first, ok := <-orders
	if !ok || first.Start == nil {
		return exitRunFailed // run has gone already
	}
	w.start = *first.Start
	if !w.begin() {
		return 0
	}
	timer := time.NewTimer(0)
	for {
		select {
		case o, ok := <-orders:
			if !ok {
				orders = nil
				w.end(becauseOrphan)
			}
			w.obey(o)
		case <-children:
		case <-timer.C:
		case s := <-drop:
			w.receive(s.(syscall.Signal))
		}
		if w.reap() {
			w.tell(report{Done: &result{w.status, w.why, w.left, bootTime()}})
			return 0
		}
		timer.Reset(w.act())
	}
}

// readOrders returns the orders of run. The channel is closed when run has gone.
func readOrders(from *os.File) <-chan order {
	orders := make(chan order)
	go func() {
		defer close(orders)
		lines := bufio.NewReader(from)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			var o order
			if json.Unmarshal(line, &o) == nil {
				orders <- o
			}
		}
	}()
	return orders
}

// tell sends a report to run, which may have gone.
func (w *watchdog) tell(r report) { _ = w.reports.Encode(r) }

// begin starts the command, and reports whether that succeeded.
func (w *watchdog) begin() bool {
	attr := &syscall.SysProcAttr{Setpgid: true, Foreground: w.Foreground}
	dieWith(attr)
	pid, err := syscall.ForkExec(string(w.Path), toStrings(w.Args), &syscall.ProcAttr{Env: toStrings(w.Env), Files: []uintptr{0, 1, 2}, Sys: attr})
	if err != nil {
		var errno syscall.Errno
		errors.As(err, &errno)
		w.tell(report{Failed: err.Error(), Errno: int(errno)})
		return false
	}
	w.pid = pid
	hurry()
	w.tell(report{Started: pid})
	return true
}

func (w *watchdog) obey(o order) {
	switch {
	case o.Deadline > 0:
		w.Deadline = o.Deadline
	case o.Lost:
		w.end(becauseLost)
	case o.Signal > 0:
		s, now := syscall.Signal(o.Signal), bootTime()
		at, all := w.own[s]
		delete(w.own, s)
		if !all || now-at > ownBefore {
			w.due = append(w.due, dueSignal{signal: s, at: now + ownSoon})
		}
	}
}

// receive records a signal that the watchdog received: the command received it, too, so it is not
// passed on.
func (w *watchdog) receive(s syscall.Signal) {
	if i := slices.IndexFunc(w.due, func(d dueSignal) bool { return d.signal == s }); i >= 0 {
		w.due = slices.Delete(w.due, i, i+1)
		return
	}
	w.own[s] = bootTime()
}

// pass passes on the signals that are due, and returns the time of the next; 0 if there is none.
func (w *watchdog) pass(now int64) int64 {
	for len(w.due) > 0 && now >= w.due[0].at {
		// the watchdog was stopped: its own signal may follow
		if d := &w.due[0]; now-d.at > ownSoon/5 && !d.late {
			d.at, d.late = now+ownSoon, true
			break
		}
		s := w.due[0].signal
		w.due = w.due[1:]
		if w.ended {
			continue
		}
		_ = syscall.Kill(-w.pid, s)
		switch s {
		case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
			_ = syscall.Kill(-w.pid, syscall.SIGCONT) // a stopped process would not end
		}
	}
	if len(w.due) == 0 {
		return 0
	}
	return w.due[0].at
}

// end begins to end the command. The first reason counts.
func (w *watchdog) end(why string) {
	if w.why == "" || w.why == becauseLeft {
		w.why = why
	}
	if w.termAt == 0 {
		w.termAt = bootTime()
		w.kill(syscall.SIGTERM)
		w.kill(syscall.SIGCONT) // a stopped process would not see it
	}
}

// killAt returns the time at which the command is killed.
func (w *watchdog) killAt() int64 {
	at := w.Deadline - int64(w.Margin)
	if w.termAt > 0 {
		at = min(at, w.termAt+int64(w.Grace))
	}
	return at
}

// act does the work that is due, and returns the time until the next.
func (w *watchdog) act() time.Duration {
	now := bootTime()
	next := w.pass(now)
	if now >= w.killAt() {
		if w.why == "" {
			w.why = becauseDeadline
		}
		w.kill(syscall.SIGKILL)
		return 2 * time.Millisecond // again, until none is left: one may have started another
	}
	termAt := w.Deadline - int64(w.Margin) - int64(w.Grace)
	if now >= termAt {
		w.end(becauseDeadline)
		termAt = w.killAt()
	}
	if next == 0 {
		next = termAt
	}
	return min(look, time.Duration(min(next, termAt, w.killAt())-now))
}

// kill sends a signal to the process group of the command and to all descendants that left it.
// After the command is reaped, another process may get the ID of the group, unless the group has
// other members. So where the watchdog adopts, it then no longer uses the group.
func (w *watchdog) kill(s syscall.Signal) {
	if !w.ended || !adopts {
		_ = syscall.Kill(-w.pid, s)
	}
	for _, pid := range descendants(os.Getpid()) {
		_ = syscall.Kill(pid, s)
	}
}

// reap collects ended children, and reports whether none is left.
func (w *watchdog) reap() bool {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil: // there are no children
			return w.ended && (adopts || !w.groupLeft())
		case pid == 0:
			return w.noneButChildren()
		case status.Stopped():
			if pid == w.pid && status.StopSignal() == syscall.SIGTSTP {
				_ = syscall.Kill(-w.pid, syscall.SIGCONT) // it would keep the lock held
			}
		case pid == w.pid:
			w.ended, w.status = true, exitStatus(status)
		}
	}
}

// noneButChildren begins to end the remaining descendants of the command, or reports that they may
// go on.
func (w *watchdog) noneButChildren() bool {
	if w.goesOn() {
		return true
	}
	if w.ended && w.left == 0 {
		w.leave()
	}
	return false
}

// goesOn reports whether descendants of the command may go on without the lock.
func (w *watchdog) goesOn() bool { return w.Leave && w.ended && w.why == "" }

// groupLeft reports whether the process group of the command has members that are no children of
// the watchdog, as on systems without adopt.
func (w *watchdog) groupLeft() bool {
	if err := syscall.Kill(-w.pid, 0); err != nil || w.goesOn() {
		return false
	}
	if w.left == 0 {
		w.leave()
	}
	return true
}

// leave begins to end the remaining descendants of the command.
func (w *watchdog) leave() {
	w.left++
	w.end(becauseLeft)
}

// exitStatus returns the exit status as in a shell.
func exitStatus(s syscall.WaitStatus) int {
	if s.Signaled() {
		return exitSignal + int(s.Signal())
	}
	return s.ExitStatus()
}
