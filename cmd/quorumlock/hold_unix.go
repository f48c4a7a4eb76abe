//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
)

// signals are the signals that run receives.
type signals struct{ came chan os.Signal }

// catchSignals catches the signals that run passes on, except those ignored at its start, as by
// nohup.
func catchSignals() signals {
	s := signals{make(chan os.Signal, 16)}
	for _, one := range passedOn {
		if !signal.Ignored(one) {
			signal.Notify(s.came, one)
		}
	}
	return s
}

// during returns a context that a signal cancels, and a function that returns the number of that
// signal, or 0. After its call, signals no longer cancel the context: pass them on to the command.
func (s signals) during(parent context.Context) (context.Context, func() int) {
	ctx, cancel := context.WithCancel(parent)
	over, stopped := make(chan struct{}), make(chan int)
	go func() {
		for {
			select {
			case one := <-s.came:
				// there is no command yet that could handle it
				if one == syscall.SIGUSR1 || one == syscall.SIGUSR2 {
					continue
				}
				cancel()
				<-over
				stopped <- int(one.(syscall.Signal))
				return
			case <-over:
				stopped <- 0
				return
			}
		}
	}()
	return ctx, func() int {
		close(over)
		return <-stopped // without a signal ctx must go on: the lease's context descends from it
	}
}

// holder runs a command under a lease, through a watchdog.
type holder struct {
	lease  *quorumlock.Lease
	job    job
	orders *os.File
	pid    int // of the watchdog
	group  int // of the command; 0 until known

	foreground bool // the command has the terminal

	valid    time.Time // the end of the lease, at the last look
	deadline int64     // the same on the clock of bootTime
	lostAt   int64     // the time of the loss; 0 before
	stopped  bool      // a signal that ends commands has come
}

// hold runs a command until it and all its descendants have ended. Without renewals, hold ends them
// before the end of the lease.
func hold(lease *quorumlock.Lease, s signals, j job) (ending, error) {
	j, err := j.renumbered()
	if err != nil {
		return ending{}, &statusError{exitRunFailed, fmt.Errorf("run: %w", err)}
	}
	h := &holder{lease: lease, job: j}
	h.renewed()
	adopt() // for the processes of a watchdog that was killed
	front := unix.Getpgrp()
	terminal, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	h.foreground = err == nil && terminal == front
	if h.foreground {
		defer func() {
			signal.Ignore(syscall.SIGTTOU) // it would stop this process, now in the background
			_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, front)
		}()
	}
	reports, err := h.start()
	if h.orders != nil {
		defer h.orders.Close() //nolint:errcheck // the watchdog has gone, or goes now
	}
	if err != nil {
		return ending{}, &statusError{exitRunFailed, fmt.Errorf("run: the watchdog cannot be started: %w", err)}
	}
	hurry() // only now, so that the watchdog and the command are not affected
	return h.follow(reports, s)
}

// start starts the watchdog, and returns the channel of its reports.
func (h *holder) start() (<-chan report, error) {
	path, err := self()
	if err != nil {
		return nil, err
	}
	ordersR, ordersW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ordersR.Close() //nolint:errcheck // the watchdog has its own
	reportsR, reportsW, err := os.Pipe()
	if err != nil {
		return nil, errs.Join(err, ordersW.Close())
	}
	defer reportsW.Close() //nolint:errcheck // the watchdog has its own
	h.orders = ordersW
	// The process group is a new one, so that a signal to this one's group does not stop or kill
	// the watchdog. It inherits all that run has inherited, and the two ends of the pipes.
	p, err := startWith(path, []string{watchdogName, watchdogArgument}, ordersR, reportsW)
	if err != nil {
		return nil, errs.Join(err, ordersW.Close(), reportsR.Close())
	}
	h.pid = p.Pid
	_ = p.Release() // reap waits for it, along with its descendants
	reports := make(chan report, 4)
	go func() {
		defer close(reports)
		defer reportsR.Close() //nolint:errcheck // it was only read
		lines := bufio.NewReader(reportsR)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			var r report
			if json.Unmarshal(line, &r) == nil {
				reports <- r
			}
		}
	}()
	j := h.job
	first, err := json.Marshal(order{Start: &start{[]byte(j.path), toBytes(j.args), toBytes(j.env), h.foreground, h.deadline, j.Margin, j.Grace, j.leave}})
	if err != nil {
		return nil, err
	}
	// It may be longer than the pipe's buffer, and then waits for a watchdog that is stopped.
	_ = h.orders.SetWriteDeadline(time.Now().Add(time.Minute))
	_, err = h.orders.Write(append(first, '\n'))
	_ = h.orders.SetWriteDeadline(time.Time{})
	return reports, err
}

// startWith starts a process with further files, and their numbers as arguments. The process has
// the files under the same numbers: those that os.ProcAttr would give to them may be taken by files
// that it inherits.
func startWith(path string, args []string, files ...*os.File) (*os.Process, error) {
	for _, f := range files {
		fd := f.Fd()
		if _, err := unix.FcntlInt(fd, unix.F_SETFD, 0); err != nil {
			return nil, err
		}
		args = append(args, strconv.Itoa(int(fd)))
	}
	return os.StartProcess(path, args, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
}

// order sends an order to the watchdog without waiting. It is lost only if the pipe is full,
// because the watchdog was stopped for a long time. A line of at most PIPE_BUF bytes is written as
// a whole or not at all. A write deadline would lose orders whenever this process is slow.
func (h *holder) order(o order) (sent bool) {
	line, err := json.Marshal(o)
	if err != nil {
		panic(err) // never: these orders have numbers and a bool
	}
	if pipe, err := h.orders.SyscallConn(); err == nil {
		_ = pipe.Write(func(fd uintptr) bool {
			_, err := syscall.Write(int(fd), append(line, '\n'))
			sent = err == nil
			return true
		})
	}
	return sent
}

// renewed reports whether the end of the lease has moved, and records the new end.
func (h *holder) renewed() bool {
	// The order matters: if the process is stopped or the machine is suspended between two of these
	// lines, the deadline is too early, never too late.
	now := bootTime()
	valid := h.lease.ValidUntil()
	left := time.Until(valid)
	if valid.Equal(h.valid) {
		return false
	}
	h.valid, h.deadline = valid, now+int64(left)
	return true
}

// follow passes on signals and renewals until the watchdog reports the end of the command. If the
// watchdog fails to end the command in time, follow ends it.
func (h *holder) follow(reports <-chan report, s signals) (ending, error) {
	tick := time.NewTicker(min(max(h.job.ttl/50, 10*time.Millisecond), 250*time.Millisecond))
	defer tick.Stop()
	lost := h.lease.Context().Done()
	var hungUp <-chan time.Time
	for {
		select {
		case r, ok := <-reports:
			switch {
			case !ok:
				h.takeOver()
				return ending{started: h.group > 0, stopped: true}, &statusError{exitRunFailed, errors.New("the watchdog was killed, so the command was ended")}
			case r.Started > 0:
				h.group = r.Started
			case r.Failed != "":
				h.takeOver()
				return ending{}, failedToRun(h.job.path, r)
			case r.Done != nil:
				if !h.job.leave || r.Done.Why != "" {
					h.takeOver()
				}
				for len(s.came) > 0 {
					h.note(<-s.came)
				}
				return h.ending(*r.Done), nil
			}
		case one := <-s.came:
			h.note(one)
			if one == syscall.SIGHUP && h.foreground && hangsUp() {
				hungUp = time.After(leaderTime)
				continue
			}
			h.order(order{Signal: int(one.(syscall.Signal))})
		case <-hungUp:
			// A leader that is still alive waits for this process, most likely.
			if leader, err := unix.Getsid(0); err == nil && syscall.Kill(leader, 0) == nil {
				h.order(order{Signal: int(syscall.SIGHUP)})
			}
		case <-lost:
			lost = nil
			h.lostAt = bootTime()
			h.order(order{Lost: true})
		case <-tick.C:
			if h.renewed() && !h.order(order{Deadline: h.deadline}) {
				h.valid = time.Time{} // again at the next tick
			}
		}
		if bootTime() >= h.killAt() {
			h.takeOver()
			dead := bootTime()
			if r := last(reports); r != nil { // this process was stopped, not the watchdog
				return h.ending(*r), nil
			}
			return h.ending(result{Why: becauseDeadline + ", and the watchdog did not end it", Dead: dead}), nil
		}
	}
}

// note records a signal that ends commands.
func (h *holder) note(one os.Signal) {
	h.stopped = h.stopped || one != syscall.SIGUSR1 && one != syscall.SIGUSR2
}

// leaderTime is how long the leader of a session has to end after its terminal is gone.
const leaderTime = 5 * time.Second

// hangsUp reports whether the kernel sends SIGHUP to the command, the foreground of a terminal that
// is gone. It does so when the leader of the session ends, and only if that is another process.
func hangsUp() bool {
	_, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	leader, _ := unix.Getsid(0)
	return errors.Is(err, syscall.EIO) && leader != os.Getpid()
}

// killAt returns the time at which this process kills the command. The watchdog should have killed
// it before.
func (h *holder) killAt() int64 {
	at := h.deadline - int64(h.job.Margin)
	if h.lostAt > 0 {
		at = min(at, h.lostAt+int64(h.job.Grace))
	}
	return at + int64(h.job.Margin)/4
}

// takeOver kills all remaining processes, including the watchdog. It returns when none is left, or
// one second after the end of the lease, since a process may hang in the kernel.
func (h *holder) takeOver() {
	for h.reap() {
		left := descendants(os.Getpid())
		if !adopts {
			left = append(left, h.pid)
		}
		if h.group > 0 && (!adopts || slices.Contains(left, h.group)) {
			_ = syscall.Kill(-h.group, syscall.SIGKILL)
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if bootTime() > h.deadline+int64(time.Second) {
			return
		}
		time.Sleep(time.Millisecond)
	}
	if !adopts && h.group > 0 {
		_ = syscall.Kill(-h.group, syscall.SIGKILL)
	}
}

// reap collects ended children, and reports whether any are left.
func (h *holder) reap() bool {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err != syscall.EINTR && pid <= 0 {
			return err == nil
		}
	}
}

// last returns the result that the watchdog has reported, if it has ended.
func last(reports <-chan report) *result {
	for r := range reports {
		if r.Done != nil {
			return r.Done
		}
	}
	return nil
}

func (h *holder) ending(r result) ending {
	lost := r.Why != "" && r.Why != becauseLeft
	why := r.Why
	if cause, ok := errors.AsType[*quorumlock.LostError](context.Cause(h.lease.Context())); ok && lost {
		why = errorText(cause)
	}
	return ending{started: true, status: r.Status, stopped: h.stopped, lost: lost, why: why, spare: time.Duration(h.deadline - r.Dead), left: r.Left}
}

// failedToRun is the error for a command that the watchdog failed to run.
func failedToRun(path string, r report) error {
	return cannotRun(&os.PathError{Op: "exec", Path: path, Err: syscall.Errno(r.Errno)})
}
