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
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The watchdog is a process between run and the command. run holds the lease, and tells the watchdog its end whenever it is
// renewed. The watchdog starts the command, and ends it before the end that it knows, whatever run does: run may be
// stopped or killed, or wait for something. On Linux it is the parent of all that the command starts.

// watchdogArgument is the one argument of the watchdog's process.
const watchdogArgument = "lease-watchdog"

// watchdogName is what process listings show of it, so that a kill by the name of the tool does not hit it.
const watchdogName = "lease-watchdog"

// isWatchdog reports whether this process is a watchdog.
func isWatchdog(args []string) bool { return len(args) == 2 && args[1] == watchdogArgument }

// The file descriptors of the watchdog.
const (
	ordersFD  = 3
	reportsFD = 4
)

func init() {
	// The kernel kills the command when the thread ends that has started it: it must be the one that lasts.
	runtime.LockOSThread()
}

// look is how long the watchdog sleeps at most: a timer does not run while the machine is suspended.
const look = 100 * time.Millisecond

// passedOn are the signals that run passes on to the command.
var passedOn = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

// watchdog is the state of a watchdog. All times are on the clock of bootTime, in ns.
type watchdog struct {
	start
	reports *json.Encoder
	pid     int    // of the command and its process group
	ended   bool   // the command has; others may be left
	status  int    // of the command
	left    int    // how often something was left when the command had ended
	why     string // why the command is being ended; empty if it is not
	termAt  int64  // when it got SIGTERM; 0 if it did not

	own map[syscall.Signal]int64 // signals that the watchdog got itself, and when
	due []dueSignal              // to be passed on
}

// dueSignal is a signal for the command that run has got. It waits for a moment: if the watchdog, which is in a process group of its own,
// gets the signal itself, all processes do, as from systemd or at a shutdown. The command must not get it twice.
type dueSignal struct {
	signal syscall.Signal
	at     int64 // when it is passed on
	late   bool  // it was put off once, since the watchdog was late
}

const (
	ownSoon   = int64(50 * time.Millisecond) // the watchdog gets a signal for all so much later than run
	ownBefore = int64(time.Second)           // or earlier
)

// watch is the watchdog's program. It returns the exit status.
func watch() int {
	rename(watchdogName)
	adopt()
	// It outlives run, whatever signal the terminal or a user sends to all. Signals that are ignored stay so for the command.
	drop := make(chan os.Signal, 16)
	for _, s := range append(passedOn, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGPIPE) {
		if !signal.Ignored(s) {
			signal.Notify(drop, s)
		}
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	unix.CloseOnExec(ordersFD)
	unix.CloseOnExec(reportsFD)
	orders := readOrders(os.NewFile(ordersFD, "orders"))
	w := &watchdog{reports: json.NewEncoder(os.NewFile(reportsFD, "reports")), own: make(map[syscall.Signal]int64)}
	first, ok := <-orders
	if !ok || first.Start == nil {
		return exitRunFailed // run is gone already
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

// readOrders returns what run says. The channel is closed when run is gone.
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

// tell says something to run, which may be gone.
func (w *watchdog) tell(r report) { _ = w.reports.Encode(r) }

// begin starts the command, and reports whether that went well.
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

// receive takes notice of a signal that the watchdog got: the command got it, too, so it is not passed on.
func (w *watchdog) receive(s syscall.Signal) {
	if i := slices.IndexFunc(w.due, func(d dueSignal) bool { return d.signal == s }); i >= 0 {
		w.due = slices.Delete(w.due, i, i+1)
		return
	}
	w.own[s] = bootTime()
}

// pass passes on the signals that are due, and returns when the next will be; 0 if there is none.
func (w *watchdog) pass(now int64) int64 {
	for len(w.due) > 0 && now >= w.due[0].at {
		if d := &w.due[0]; now-d.at > ownSoon/5 && !d.late { // the watchdog was stopped: its own signal may be about to come
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
		case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT: // they are to end it, and a stopped process does not see them
			_ = syscall.Kill(-w.pid, syscall.SIGCONT)
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
		w.kill(syscall.SIGCONT) // a stopped process does not see it otherwise
	}
}

// killAt is when the command is to be killed.
func (w *watchdog) killAt() int64 {
	at := w.Deadline - int64(w.Margin)
	if w.termAt > 0 {
		at = min(at, w.termAt+int64(w.Grace))
	}
	return at
}

// act does what is due, and returns how long nothing will be.
func (w *watchdog) act() time.Duration {
	now := bootTime()
	next := w.pass(now)
	if now >= w.killAt() {
		if w.why == "" {
			w.why = becauseDeadline
		}
		w.kill(syscall.SIGKILL)
		return 2 * time.Millisecond // again, until none is left: somebody may have started another meanwhile
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

// kill sends a signal to the process group of the command and to all that left it. When the command is reaped, the ID of the
// group may soon be somebody else's, unless another is in the group: where the watchdog adopts, it needs the group no more.
func (w *watchdog) kill(s syscall.Signal) {
	if !w.ended || !adopts {
		_ = syscall.Kill(-w.pid, s)
	}
	for _, pid := range descendants(os.Getpid()) {
		_ = syscall.Kill(pid, s)
	}
}

// reap takes notice of what has ended, and reports whether nothing is left.
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
				_ = syscall.Kill(-w.pid, syscall.SIGCONT) // it would hold the lock
			}
		case pid == w.pid:
			w.ended, w.status = true, exitStatus(status)
		}
	}
}

// noneButChildren has what the command left behind ended, or reports that it may go on.
func (w *watchdog) noneButChildren() bool {
	if w.goesOn() {
		return true
	}
	if w.ended && w.left == 0 {
		w.leave()
	}
	return false
}

// goesOn reports whether what the command left behind may go on without the lock.
func (w *watchdog) goesOn() bool { return w.Leave && w.ended && w.why == "" }

// groupLeft reports whether the command has left somebody in its process group that is no child of the watchdog, as on
// systems where it cannot adopt.
func (w *watchdog) groupLeft() bool {
	if err := syscall.Kill(-w.pid, 0); err != nil || w.goesOn() {
		return false
	}
	if w.left == 0 {
		w.leave()
	}
	return true
}

// leave begins to end what the command left behind.
func (w *watchdog) leave() {
	w.left++
	w.end(becauseLeft)
}

// exitStatus is a status as a shell has it.
func exitStatus(s syscall.WaitStatus) int {
	if s.Signaled() {
		return exitSignal + int(s.Signal())
	}
	return s.ExitStatus()
}
