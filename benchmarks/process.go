package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// service is a group of server processes that this program has started, and how to reach them.
type service struct {
	addrs     []string
	processes []*exec.Cmd
}

// start starts one server. Its output goes to a file, which [service.output] reads after a failure.
func (s *service) start(cmd *exec.Cmd, log string) error {
	f, err := os.Create(log)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // the server has its own handle
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		return err
	}
	s.processes = append(s.processes, cmd)
	return nil
}

// close kills the processes that were started, by their own handles, and waits for them.
func (s *service) close() {
	for _, p := range s.processes {
		_ = p.Process.Kill()
		_ = p.Wait() // "signal: killed" is expected
	}
}

// pids are those of the started processes. A server may have children of its own.
func (s *service) pids() []int {
	pids := make([]int, len(s.processes))
	for i, p := range s.processes {
		pids[i] = p.Process.Pid
	}
	return pids
}

// thaw lets processes go on that a worker has stopped and not continued, because it failed.
func thaw(pids []int) error {
	var err error
	for _, pid := range pids {
		err = errors.Join(err, syscall.Kill(pid, syscall.SIGCONT))
	}
	return err
}

// patience is the longest time from the start of a server to its first answer: three JVMs on a busy
// machine need some.
const patience = 60 * time.Second

// await calls answers until it returns no error, for at most patience.
func await(ctx context.Context, what string, answers func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		one, stop := context.WithTimeout(ctx, 2*time.Second)
		err := answers(one)
		stop()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s does not answer: %w", what, err)
		}
		_ = pause(ctx, 20*time.Millisecond)
	}
}

// pause waits, and returns ctx's error if that ends first.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// freePorts returns ports without a listener a moment ago, all different.
func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() //nolint:errcheck // open until all are found, so that they differ
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// notInstalled is the error of a missing server. It names the package to install.
type notInstalled struct{ program, install string }

func (e *notInstalled) Error() string {
	return fmt.Sprintf("%s is not installed: on Debian, apt-get install %s", e.program, e.install)
}
