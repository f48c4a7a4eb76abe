package main

import (
	"bufio"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/quorumlock/quorumlock/internal/testkit"
)

// Without a terminal or an input, as in a script or a container.
func TestDevServesInTheBackgroundUntilASignal(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		c := exec.Command(tool, "dev", "--port", "0")
		out, err := c.StdoutPipe()
		testkit.Must(t, err, "the output")
		testkit.Must(t, c.Start(), "start")
		line, err := bufio.NewReader(out).ReadString('\n')
		testkit.OK(t, err, "the first line")
		_, nodes, _ := strings.Cut(strings.TrimSpace(line), "=")
		check := exec.Command(tool, "check", "--nodes", nodes)
		report, err := check.CombinedOutput()
		testkit.OK(t, err, "check: %s", report)
		testkit.OK(t, c.Process.Signal(signal), "%v", signal)
		testkit.OK(t, c.Wait(), "the end after %v", signal)
	}
}

// A shell's job in the background does not stop for its input, and the foreground has Ctrl-C.
func TestDevAtATerminal(t *testing.T) {
	t.Parallel()
	term := newTerminal(t, "", "bash --norc")
	term.keys(tool+" dev --port 0 &", "Enter")
	term.shows("no more commands are read, and the nodes go on")
	term.keys("clear; kill %1; wait %1; echo status $?", "Enter")
	term.shows("\nstatus 0")
	term.keys("clear; "+tool+" dev --port 0; echo status $?", "Enter")
	term.shows("\nType stop 1")
	term.keys("stop 2", "Enter")
	term.shows("\nnode 2 is stopped")
	term.keys("C-d")
	term.keys("C-c")
	term.shows("status 0")
}
