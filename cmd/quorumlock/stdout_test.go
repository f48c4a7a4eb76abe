package main

import (
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/quorumlock/quorumlock"
)

// brokenPipe is a stdout without a reader.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) {
	return 0, &os.PathError{Op: "write", Path: "/dev/stdout", Err: syscall.EPIPE}
}

func TestClosedStdoutIsExitStatus1WithoutAWord(t *testing.T) {
	_, nodes := tcpNodes(t, 1)
	for _, args := range [][]string{{"help"}, {"completion", "bash"}, {"inspect", "x", "--nodes", nodes}, {"inspect", "x", "--json", "--nodes", nodes}} {
		var stderr strings.Builder
		if status := main1(t.Context(), args, brokenPipe{}, &stderr); status != exitFailure || stderr.Len() > 0 {
			t.Errorf("%s: status %d, want %d: %s", args[0], status, exitFailure, stderr.String())
		}
	}
}

func TestBrokenPipeToANodeIsNoClosedStdout(t *testing.T) {
	node := &quorumlock.NodeError{Node: "a:1", Err: &net.OpError{Op: "write", Err: os.NewSyscallError("write", syscall.EPIPE)}}
	for _, c := range []struct {
		name   string
		args   []string
		err    error
		status int
	}{
		{"no quorum", []string{"inspect", "x"}, &quorumlock.QuorumError{Needed: 1, Nodes: []*quorumlock.NodeError{node}}, exitNoQuorum},
		{"one node", []string{"leader", "x"}, node, exitFailure},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, said := verdict(t.Context(), c.args, c.err)
			if status != c.status || said == nil {
				t.Errorf("status %d, want %d; it says %v", status, c.status, said)
			}
		})
	}
}
