package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/require"
)

// requireTmux is the variable that makes it a failure if there is no tmux.
const requireTmux = "QUORUMLOCK_REQUIRE_TMUX"

// terminal is a real one, by tmux.
type terminal struct {
	t      *testing.T
	socket string
}

// newTerminal runs a command in a terminal of 80 by 24.
func newTerminal(t *testing.T, nodes, command string) *terminal {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		require.Skip(t, requireTmux, err.Error())
	}
	term := &terminal{t, t.TempDir() + "/tmux"}
	c := exec.Command("tmux", "-S", term.socket, "-f", os.DevNull, "new-session", "-d", "-x", "80", "-y", "24", command)
	c.Env = append(os.Environ(), "QUORUMLOCK_NODES="+nodes, "TERM=xterm-256color", "LC_ALL=C.UTF-8", "HISTFILE=")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", term.socket, "kill-server").Run() })
	return term
}

func (term *terminal) do(args ...string) string {
	term.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-S", term.socket}, args...)...).CombinedOutput()
	if err != nil {
		term.t.Fatalf("tmux %q: %v: %s", args, err, out)
	}
	return string(out)
}

func (term *terminal) keys(keys ...string) { term.do(append([]string{"send-keys"}, keys...)...) }

func (term *terminal) screen() string { return "\n" + term.do("capture-pane", "-p") }

// shows waits until the screen has a text.
func (term *terminal) shows(text string) string {
	term.t.Helper()
	screen := ""
	if err := patiently(func() bool { screen = term.screen(); return strings.Contains(screen, text) }); err != nil {
		term.t.Fatalf("nothing of %q on the screen:\n%s", text, screen)
	}
	return screen
}

func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	servers, nodes := startServers(t, 3)
	h := begin(t, nodes, "a-lock", "", time.Minute, "--label", "holder-1")
	waiter := beginWaiter(t, servers, nodes, "a-lock", "--label", "waiter-1")
	grant(t, servers, "evil\x1b[2J\x1b]0;owned\x07", "evil\x1b[31m:1")
	for i := range 30 {
		grant(t, servers, fmt.Sprintf("many-%02d", i), fmt.Sprintf("client-%d:1", i))
	}
	term := newTerminal(t, nodes, "sh")
	term.keys("stty -a | grep -o -e '-icanon'; echo before", "Enter")
	term.shows("before")
	term.keys(tool+" top --interval 300ms", "Enter")
	screen := term.shows("waiter-1")
	lines := strings.Split(strings.Trim(screen, "\n"), "\n")
	if len(lines) > 24 {
		t.Errorf("%d lines", len(lines))
	}
	has(t, screen, "3 of 3 nodes ready, quorum 2, 1 more may fail", servers[0].addr+"                 ready", "LOCK", "a-lock", "holder-1", "32 locks", "many-0")
	if !strings.HasPrefix(lines[5], "a-lock ") {
		t.Errorf("the lock with the longest queue is not the first:\n%s", screen)
	}
	noSecret(t, screen)
	if title := term.do("display-message", "-p", "#{pane_title}"); strings.Contains(title, "owned") {
		t.Errorf("the name of a lock has set the title of the terminal: %q", title)
	}
	for range 20 {
		term.keys("Down")
	}
	screen = term.shows("many-29")
	if strings.Contains(screen, "a-lock") {
		t.Errorf("the arrows do not scroll:\n%s", screen)
	}
	term.keys("g")
	term.shows("a-lock")
	term.keys("Enter")
	term.shows("1 in the queue") // all about the first lock
	term.keys("x")
	term.shows("32 locks")
	term.keys("?")
	term.shows("back to the first line")
	term.keys("Down")
	term.shows("32 locks")
	servers[0].freeze(t)
	term.shows("2 of 3 nodes ready, quorum 2, 0 more may fail")
	term.shows("FAILED")
	servers[1].freeze(t)
	term.shows("NO LOCK IS GRANTED")
	for _, s := range servers {
		s.thaw()
	}
	term.shows("3 of 3 nodes ready")
	term.do("resize-window", "-x", "120", "-y", "12")
	term.shows("q: quit")
	term.do("resize-window", "-x", "20", "-y", "3")
	term.shows("\nquorumlock top")
	term.do("resize-window", "-x", "80", "-y", "24")
	term.shows("a-lock")
	term.keys("q")
	eventually(t, "top ends", func() bool {
		return strings.HasPrefix(term.do("display-message", "-p", "#{pane_current_command}"), "sh")
	})
	term.keys("stty -a | grep -c -e '-icanon'; echo after", "Enter")
	screen = term.shows("after")
	if strings.Contains(screen, "1\nafter") || !strings.Contains(screen, "before") {
		t.Errorf("the terminal is not what it was before:\n%s", screen)
	}
	h.endBy(syscall.SIGINT, 130)
	waiter.end(0)
}

// At a terminal the command is in the foreground: it can read, Ctrl-C is its, and Ctrl-Z does not
// stop it.
func TestRunAtATerminal(t *testing.T) {
	t.Parallel()
	_, nodes := startServers(t, 1)
	term := newTerminal(t, nodes, "bash --norc")
	term.keys(tool+` run x -- sh -c 'echo reads; read line; echo "got <$line>"'; echo status $?`, "Enter")
	term.shows("\nreads")
	term.keys("hello", "Enter")
	term.shows("got <hello>")
	term.shows("status 0")
	term.keys("clear; "+tool+` run x -- bash -c 'trap "echo continued" CONT; trap "echo interrupted; exit 9" INT; echo started; while :; do sleep 0.05; done'; echo status $?`, "Enter")
	term.shows("\nstarted")
	term.keys("C-z")
	if screen := term.shows("continued\n"); strings.Contains(screen, "Stopped") {
		t.Errorf("Ctrl-Z stops it:\n%s", screen)
	}
	term.keys("C-c")
	term.shows("interrupted")
	term.shows("status 9")
	term.keys("echo the shell is back", "Enter")
	term.shows("\nthe shell is back")
}

// A terminal that is closed hangs up the command once, by the kernel or by the tool: the kernel
// sends SIGHUP to the leader of the session, and to the foreground when the leader ends.
func TestRunAtATerminalThatIsClosed(t *testing.T) {
	t.Parallel()
	_, nodes := startServers(t, 1)
	for leader, shell := range map[string]string{"the tool": "exec ", "a shell": "true; ", "an interactive shell": "", "a leader that waits": "exec timeout 600 "} {
		t.Run(leader, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			ready, count, script := filepath.Join(dir, "ready"), filepath.Join(dir, "count"), filepath.Join(dir, "script")
			// The machine may be busy: the script starts no process while it waits, and the lease is long.
			err := os.WriteFile(script, []byte("cd "+dir+"; mkfifo wait; exec 9<>wait; n=0; trap 'n=$((n+1))' HUP; touch ready\n"+
				"until [ $n -gt 0 ]; do read -t 0.02 -u 9; done; for i in {1..50}; do read -t 0.02 -u 9; done; echo $n >new; mv new count"), 0o600)
			testkit.Must(t, err, "the script")
			run := tool + " run '" + leader + "' --ttl 300s -- bash " + script
			var term *terminal
			if shell == "" {
				term = newTerminal(t, nodes, "bash --norc")
				term.keys(run, "Enter")
			} else {
				term = newTerminal(t, nodes, shell+run+"; true")
			}
			eventually(t, "the command runs", func() bool { return exists(ready) })
			term.do("kill-server")
			eventually(t, "the command ends", func() bool { return exists(count) })
			if n, err := os.ReadFile(count); err != nil || string(n) != "1\n" {
				t.Errorf("the command got SIGHUP %q times, %v", n, err)
			}
		})
	}
}
