// Package try runs an example like a user: as processes, with three nodes in QUORUMLOCK_NODES.
package try

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
)

const isProcess = "QUORUMLOCK_EXAMPLE_PROCESS" // set in a process of a Fleet

// Main is the TestMain of an example. In a process of a Fleet, it runs the example's main.
func Main(m *testing.M, main func()) {
	if os.Getenv(isProcess) == "" {
		os.Exit(m.Run())
	}
	main()
}

// Fleet has processes of an example. Its nodes are in the process of the test.
type Fleet struct {
	t           *testing.T
	env         []string
	read, write *os.File // the output of all processes, in the order of their writes
	lines       *bufio.Reader
}

// New starts the nodes. The processes also have the settings of env, such as ADDR=127.0.0.1:0.
func New(t *testing.T, env ...string) *Fleet {
	var urls []string
	for _, name := range []string{"node-1", "node-2", "node-3"} {
		server := embedded.Start(name)
		t.Cleanup(server.Close)
		testkit.Must(t, server.Listen(), "Listen")
		urls = append(urls, "redis://"+server.Redis.Addr())
	}
	env = append(append(os.Environ(), isProcess+"=1", "QUORUMLOCK_NODES="+strings.Join(urls, ",")), env...)
	read, write, err := os.Pipe()
	testkit.Must(t, err, "Pipe")
	t.Cleanup(func() { _, _ = read.Close(), write.Close() })
	return &Fleet{t, env, read, write, bufio.NewReader(read)}
}

// Start starts a process with args. Its input is stdin.
func (f *Fleet) Start(stdin string, args ...string) *exec.Cmd {
	f.t.Helper()
	p := exec.Command(os.Args[0], args...)
	p.Env, p.Stdin, p.Stdout, p.Stderr = f.env, strings.NewReader(stdin), f.write, os.Stderr
	testkit.Must(f.t, p.Start(), "Start")
	f.t.Cleanup(func() {
		if p.ProcessState == nil {
			_, _ = p.Process.Kill(), p.Wait()
		}
	})
	return p
}

// Line returns the next line of any process.
func (f *Fleet) Line() string {
	f.t.Helper()
	_ = f.read.SetReadDeadline(time.Now().Add(2 * time.Minute)) // Windows has none: go test ends the wait there
	line, err := f.lines.ReadString('\n')
	testkit.Must(f.t, err, "a line of a process")
	return strings.TrimSuffix(line, "\n")
}

// Stop interrupts the processes, and waits for them. Windows has no interrupts.
func (f *Fleet) Stop(processes ...*exec.Cmd) {
	f.t.Helper()
	for _, p := range processes {
		testkit.Must(f.t, p.Process.Signal(os.Interrupt), "Signal")
	}
	f.Wait(processes...)
}

// Wait waits until the processes have ended without an error.
func (f *Fleet) Wait(processes ...*exec.Cmd) {
	f.t.Helper()
	for _, p := range processes {
		testkit.Must(f.t, p.Wait(), "Wait")
	}
}
