package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/wire"
)

var trials = flag.Int("trials", 2, "how often to try each fault of run at a random moment")

// lanes is the number of concurrent trials of a fault, each with nodes of its own.
const lanes = 2

// running is a quorumlock run as a process.
type running struct {
	*exec.Cmd
	heart  // of a beating command
	t      testing.TB
	name   string
	ttl    time.Duration
	ready  func() bool // reports whether the run has come as far as the test needs
	stderr bytes.Buffer
	ended  chan struct{}
	dog    int   // the process ID of the watchdog
	pids   []int // of the command and its descendants
}

// newRun returns a quorumlock run in a directory of its own, to be started.
func newRun(t testing.TB, nodes, name string, args ...string) *running {
	r := &running{Cmd: command(nodes, append([]string{"run", name}, args...)...), t: t, name: name, ended: make(chan struct{})}
	r.Stderr, r.Dir = &r.stderr, t.TempDir()
	return r
}

// begin starts a run with a beating command, and returns when that beats.
func begin(t testing.TB, nodes, name, mode string, ttl time.Duration, flags ...string) *running {
	t.Helper()
	r := newRun(t, nodes, name, slices.Concat([]string{"--ttl", ttl.String()}, flags, []string{"--", testBinary})...)
	r.beat(mode, ttl)
	return r
}

// beat starts a run whose command beats.
func (r *running) beat(mode string, ttl time.Duration) {
	r.t.Helper()
	r.heart, r.ttl = heartAt(r.t.TempDir()+"/beat", mode), ttl
	r.Env, r.ready = append(r.Env, r.env()...), r.beating
	r.start()
}

// beginScript starts a run with a shell script, and returns when that has made the file ready.
func beginScript(t testing.TB, nodes, name, script string, flags ...string) *running {
	t.Helper()
	r := newRun(t, nodes, name, append(flags, "--", "sh", "-c", script)...)
	r.ready = func() bool { return exists(r.Dir + "/ready") }
	r.start()
	return r
}

// beginWaiter starts a run, and returns when it is in the queue of each of the servers.
func beginWaiter(t testing.TB, servers []*nodeProcess, nodes, name string, flags ...string) *running {
	t.Helper()
	r := newRun(t, nodes, name, append(flags, "--", "true")...)
	r.ready = func() bool { return !slices.Contains(queues(servers, name), 0) }
	r.start()
	return r
}

// queues returns the length of the queue of a lock at each of the servers.
func queues(servers []*nodeProcess, name string) (lengths []int64) {
	for _, s := range servers {
		lengths = append(lengths, s.admin.ZCard(context.Background(), wire.QueueKey(name)).Val())
	}
	return lengths
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func (r *running) start() {
	r.t.Helper()
	testkit.Must(r.t, r.Start(), "start")
	go func() {
		_ = r.Wait()
		close(r.ended)
	}()
	r.t.Cleanup(func() {
		_ = r.Process.Kill()
		<-r.ended
	})
	eventually(r.t, "quorumlock run is ready", func() bool {
		select {
		case <-r.ended:
			if !r.ready() {
				r.t.Fatalf("quorumlock run ended before it was ready: %s", r.stderr.String())
			}
			return true
		default:
			return r.ready()
		}
	})
	for _, r.dog = range childrenOf(r.Process.Pid) {
		r.pids = append(r.pids, descendants(r.dog)...)
	}
	if len(r.pids) < len(r.files) && !strings.Contains(r.mode, "leave") {
		r.t.Fatalf("the command has the processes %v, want %d", r.pids, len(r.files))
	}
}

// dead reports whether the command and its descendants have ended.
func (r *running) dead() bool { return !slices.ContainsFunc(r.pids, isAlive) }

// end waits for the program, and checks its exit status and that no command is left.
func (r *running) end(status int) {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(patience):
		var left []string
		for _, pid := range append(descendants(r.Process.Pid), r.Process.Pid) {
			state, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			left = append(left, string(state))
		}
		_ = r.Process.Signal(syscall.SIGABRT) // it prints where it hangs
		time.Sleep(time.Second)
		r.t.Fatalf("quorumlock run does not end: %s\nprocesses: %q", r.stderr.String(), left)
	}
	if got := r.ProcessState.ExitCode(); got != status {
		r.t.Errorf("exit status %d, want %d: %s", got, status, r.stderr.String())
	}
	if !r.dead() {
		r.t.Error("a process of the command is alive behind the end of quorumlock run")
	}
}

// endBy sends the program a signal, and waits for its end.
func (r *running) endBy(s syscall.Signal, status int) {
	r.t.Helper()
	_ = r.Process.Signal(s)
	r.end(status)
}

// bound is a moment before which the lease is over: servers keep the lock of a lease for the drift
// longer. n is how many of the servers have renewed as late as that.
func (r *running) bound(servers []*nodeProcess, n int) time.Time {
	var ends []time.Time
	for _, s := range servers {
		ends = append(ends, s.expiry(r.t, r.name))
	}
	slices.SortFunc(ends, func(a, b time.Time) int { return b.Compare(a) })
	drift := quorumlock.DefaultDrift()
	return ends[n-1].Add(drift.Validity(r.ttl, 0) - r.ttl + time.Millisecond)
}

// A fault is an event during a run. It returns a time at which the lease is over at the latest.
type fault func(r *running, servers []*nodeProcess) time.Time

func freezeMajority(r *running, servers []*nodeProcess) time.Time {
	i := rand.IntN(len(servers))
	frozen := slices.Delete(slices.Clone(servers), i, i+1)
	for _, s := range frozen {
		s.freeze(r.t)
	}
	// Each quorum has one of the two.
	return r.bound(frozen, 1)
}

// A node logs the end of a lock before it answers. So a stopped node has logged every grant known
// to the tool.
func stopTool(r *running, servers []*nodeProcess) time.Time {
	_ = stop(r.Process.Pid)
	return r.bound(servers, 2)
}

func killTool(r *running, servers []*nodeProcess) time.Time {
	_ = r.Process.Kill()
	eventually(r.t, "the tool is dead", func() bool { return !isAlive(r.Process.Pid) })
	return r.bound(servers, 2)
}

// stopWatchdog stops the watchdog, and freezes a majority: the program itself has to end the
// command.
func stopWatchdog(r *running, servers []*nodeProcess) time.Time {
	_ = stop(r.dog)
	return freezeMajority(r, servers)
}

func TestRunTheCommandIsDeadBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		fault  fault
		status int // -1: killed
	}{
		{"a majority of the nodes freezes", freezeMajority, exitLost},
		{"the tool is stopped", stopTool, exitLost},
		{"the tool is killed", killTool, -1},
		{"the watchdog is stopped, and a majority freezes", stopWatchdog, exitLost},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			margins := make([]time.Duration, *trials)
			t.Run("lanes", func(t *testing.T) {
				var next atomic.Int64
				for range min(lanes, *trials) {
					t.Run("", func(t *testing.T) {
						t.Parallel()
						servers, nodes := startServers(t, 3)
						for n := next.Add(1); n <= int64(*trials) && !t.Failed(); n = next.Add(1) {
							margins[n-1] = try(t, servers, nodes, fmt.Sprintf("trial-%d", n), c.fault, c.status)
						}
					})
				}
			})
			if t.Failed() {
				return
			}
			slices.Sort(margins)
			t.Logf("%d trials: the command was dead %v before the end of the lease in the worst, %v in the median",
				len(margins), margins[0].Round(time.Millisecond), margins[len(margins)/2].Round(time.Millisecond))
		})
	}
}

// try plays a fault once, at a random moment of a random command, and returns how long before the
// end of the lease all of the command was dead.
func try(t *testing.T, servers []*nodeProcess, nodes, name string, f fault, status int) time.Duration {
	modes := []string{"", "stubborn", "stubborn fork", "stubborn setsid", "fork setsid", "stubborn fork setsid"}
	mode := modes[rand.IntN(len(modes))]
	// The kill is a tenth of the TTL before the end: enough time for a busy machine.
	ttl := 8*time.Second + rand.N(2*time.Second)
	r := begin(t, nodes, name, mode, ttl)
	wait := rand.N(ttl / 2) // renewed after a third
	time.Sleep(wait)
	select {
	case <-r.ended: // a busy machine was too late for a short lease: nothing to try
		r.end(exitLost)
		return try(t, servers, nodes, name+"-again", f, status)
	default:
	}
	over := f(r, servers)
	eventually(t, "the command is dead", r.dead)
	last := r.last()
	for _, s := range servers {
		s.thaw()
	}
	_ = r.Process.Signal(syscall.SIGCONT)
	r.end(status)
	margin := over.Sub(last)
	if margin <= 0 {
		t.Errorf("%s, mode %q, TTL %v, fault after %v: the command lived %v longer than the lease: %s", name, mode, ttl, wait, -margin, r.stderr.String())
	}
	return margin
}

// long is a TTL longer than any wait of a test, so that something else must end the command.
const long = 3 * patience

func TestRunTheWatchdogIsKilled(t *testing.T) {
	t.Parallel()
	servers, nodes := startServers(t, 3)
	r := begin(t, nodes, "x", "stubborn fork setsid", long)
	_ = syscall.Kill(r.dog, syscall.SIGKILL)
	r.end(exitRunFailed)
	has(t, r.stderr.String(), "watchdog was killed")
	noHolder(t, servers, "x")
}

func TestRunBothAreKilledAndTheCommandDies(t *testing.T) {
	t.Parallel()
	_, nodes := startServers(t, 1)
	r := begin(t, nodes, "x", "stubborn", long)
	_ = stop(r.Process.Pid) // so that it cannot take over
	_ = syscall.Kill(r.dog, syscall.SIGKILL)
	eventually(t, "the command is dead", r.dead)
	_ = r.Process.Kill()
	r.end(-1)
}

func TestRunEndsWhatTheCommandLeftBehindBeforeItReleases(t *testing.T) {
	t.Parallel()
	servers, nodes := startServers(t, 3)
	for _, mode := range []string{"leave fork", "leave setsid", "leave stubborn fork setsid"} {
		t.Run(mode, func(t *testing.T) {
			r := begin(t, nodes, "x", mode, long, "--grace", "300ms")
			r.end(0)
			has(t, r.stderr.String(), "left processes running")
			noHolder(t, servers, "x")
		})
	}
}

// The grace begins when the tool learns of the loss, not at the last chance of a renewal.
func TestRunTheLockIsTakenAway(t *testing.T) {
	t.Parallel()
	servers, nodes := startServers(t, 3)
	const ttl, margin = 9 * time.Second, 900 * time.Millisecond
	r := begin(t, nodes, "x", "stubborn fork setsid", ttl, "--grace", "200ms", "--node-timeout", "1s")
	if out, err := command(nodes, "unlock", "x", "--force", "--yes").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r.end(exitLost)
	// The limit is a third of the TTL, until the next renewal, and the grace.
	if late := r.last().Sub(r.bound(servers, 2).Add(-margin)); late >= 0 {
		t.Errorf("the command was killed %v after the time at which it would have been anyway", late)
	}
	noHolder(t, servers, "x")
}

func TestRunIsNotHeldUpByAFullPipe(t *testing.T) {
	t.Parallel()
	servers, nodes := startServers(t, 3)
	r := newRun(t, nodes, "x", "--ttl", "6s", "-v", "--", "sh", "-c", testBinary+" & while :; do echo something; echo else >&2; done")
	r.Stdout, r.Stderr = fullPipe(t), fullPipe(t)
	r.beat("", 6*time.Second)
	over := freezeMajority(r, servers)
	r.end(exitLost)
	if late := r.last().Sub(over); late >= 0 {
		t.Errorf("the command lived %v longer than the lease", late)
	}
}

// fullPipe returns the end of a full pipe.
func fullPipe(t *testing.T) *os.File {
	r, w, err := os.Pipe()
	testkit.Must(t, err, "pipe")
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	_ = w.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
	_, _ = w.Write(make([]byte, 1<<20))
	return w
}

func isAlive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z ")) && !bytes.Contains(stat, []byte(") X "))
}

func TestRunPassesSignalsOn(t *testing.T) {
	t.Parallel()
	_, nodes := startServers(t, 1)
	for name, s := range map[string]syscall.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2} {
		t.Run(name, func(t *testing.T) {
			r := beginScript(t, nodes, "x", "trap 'exit 42' "+name+"; touch ready; while :; do sleep 0.02; done")
			r.endBy(s, 42)
		})
	}
}

// systemd, and a shutdown, send a signal to all processes. The command gets it from them, and must
// not get it from the tool as well.
func TestRunDoesNotPassOnWhatTheCommandGetsItself(t *testing.T) {
	t.Parallel()
	_, nodes := startServers(t, 1)
	for name, test := range map[string]struct {
		order []string // the processes that get the signal
		want  int      // how often the command does, which is its status
	}{
		"the tool alone":                  {[]string{"tool"}, 1},
		"all":                             {[]string{"tool", "watchdog", "command"}, 1},
		"all, the command first":          {[]string{"command", "watchdog", "tool"}, 1},
		"the watchdog alone":              {[]string{"watchdog"}, 0},
		"all, and later the tool":         {[]string{"watchdog", "tool", "command", "", "tool"}, 2},
		"the watchdog, much later a user": {[]string{"watchdog", "", "tool"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			for try := 1; ; try++ {
				r := beginScript(t, nodes, "x", "n=0; trap 'n=$((n+1))' TERM; touch ready; i=0; while [ $i -lt 150 ]; do sleep 0.02; i=$((i+1)); done; exit $n")
				command := childrenOf(r.dog)[0] // found first: the signals come within 50 ms
				began := time.Now()
				for _, who := range test.order {
					switch who {
					case "tool":
						_ = r.Process.Signal(syscall.SIGTERM)
					case "watchdog":
						_ = syscall.Kill(r.dog, syscall.SIGTERM)
					case "command":
						_ = syscall.Kill(-command, syscall.SIGTERM)
					case "":
						time.Sleep(1200 * time.Millisecond)
					}
				}
				<-r.ended
				// On a busy machine, the tool may see the signals further apart.
				if got := r.ProcessState.ExitCode(); got != test.want && try < 4 {
					t.Logf("try %d: exit status %d, the signals took %v", try, got, time.Since(began))
					continue
				}
				r.end(test.want)
				break
			}
		})
	}
}

// A command that is told to stop may have done half of its work, though its status is 0.
func TestRunFreesAPeriodicLockIfItsCommandIsToldToStop(t *testing.T) {
	t.Parallel()
	_, nodes := startServers(t, 1)
	for name, test := range map[string]struct {
		signal syscall.Signal
		again  int // the status of the next run
	}{"TERM": {syscall.SIGTERM, 0}, "USR1": {syscall.SIGUSR1, exitNotAcquired}} {
		t.Run(name, func(t *testing.T) {
			first := beginScript(t, nodes, name, "trap 'exit 0' "+name+"; touch ready; while :; do sleep 0.02; done", "--every", "1h", "--release-on-failure")
			first.endBy(test.signal, 0)
			next := command(nodes, "run", name, "--every", "1h", "--try", "--", "true")
			_ = next.Run()
			testkit.Equal(t, next.ProcessState.ExitCode(), test.again, "status of the next run")
		})
	}
}

func TestRunInterruptedWhileItWaitsLeavesNothing(t *testing.T) {
	t.Parallel()
	servers, nodes := startServers(t, 3)
	holder := begin(t, nodes, "x", "", long)
	for s, status := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		r := beginWaiter(t, servers, nodes, "x")
		r.endBy(s, status)
		has(t, r.stderr.String(), "interrupted")
		eventually(t, "the queue is empty", func() bool { return slices.Max(queues(servers, "x")) == 0 })
	}
	holder.endBy(syscall.SIGTERM, 143)
}

func TestRunShowsNoPasswordInProcessListings(t *testing.T) {
	t.Parallel()
	servers, nodes := startServers(t, 3)
	r := begin(t, "", "x", "", long, "--nodes", nodes)
	of := func(pid int, file string) string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
		testkit.OK(t, err, "process %d", pid)
		return string(text)
	}
	for _, pid := range append(descendants(r.Process.Pid), r.Process.Pid) {
		noSecret(t, of(pid, "cmdline"))
	}
	has(t, of(r.Process.Pid, "cmdline"), servers[0].addr) // no more than the password is hidden
	// A kill by the name of the tool, or pkill -f, must not hit the watchdog.
	testkit.Equal(t, of(r.dog, "comm"), "lease-watchdog\n", "the name of the watchdog")
	if line := of(r.dog, "cmdline"); strings.Contains(line, "quorumlock") {
		t.Errorf("the watchdog's command line is %q", line)
	}
	r.endBy(syscall.SIGTERM, 143)
}

// command is the real program with nodes in its environment.
func command(nodes string, args ...string) *exec.Cmd {
	c := exec.Command(tool, args...)
	c.Env = append(os.Environ(), "QUORUMLOCK_NODES="+nodes)
	return c
}

// noHolder checks that a lock has no holder.
func noHolder(t *testing.T, servers []*nodeProcess, name string) {
	t.Helper()
	for _, s := range servers {
		if n, err := s.admin.Exists(context.Background(), name).Result(); n != 0 || err != nil {
			t.Errorf("%s has the lock: %v", s.addr, err)
		}
	}
}

func TestRunSaysWhatAnUnconfirmedReleaseMeans(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		flags []string
		want  string
	}{
		{"the lock may be held on", nil, "the lock may be held until its TTL is over"},
		{"the job may run again", []string{"--at-least", "1m"}, "the job may run again within its period"},
	} {
		t.Run(c.name, func(t *testing.T) {
			servers, nodes := startServers(t, 3)
			r := beginScript(t, nodes, "x", "touch ready; until test -e go; do sleep 0.01; done", c.flags...)
			for _, s := range servers[1:] {
				s.freeze(t)
			}
			testkit.OK(t, os.WriteFile(r.Dir+"/go", nil, 0o600), "go")
			r.end(0)
			has(t, r.stderr.String(), c.want)
		})
	}
}

// A command in the background that reads from the terminal gets SIGTTIN, which stops it.
func TestRunEndsAStoppedCommandWhenItPassesASignalOn(t *testing.T) {
	t.Parallel()
	_, nodes := startServers(t, 1)
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		t.Run(s.String(), func(t *testing.T) {
			r := newRun(t, nodes, "x", "--", "sh", "-c", "ulimit -c 0; kill -TTIN $$")
			r.ready = func() bool { return slices.ContainsFunc(descendants(r.Process.Pid), isStopped) }
			r.start()
			r.endBy(s, exitSignal+int(s))
		})
	}
}

func isStopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && bytes.Contains(stat, []byte(") T "))
}

// An order is sent if the pipe has room, and dropped without waiting otherwise.
func TestOrdersAreLostOnlyInAFullPipe(t *testing.T) {
	r, w, err := os.Pipe()
	testkit.Must(t, err, "pipe")
	defer r.Close() //nolint:errcheck // it was only read
	h := &holder{orders: w}
	const tries = 1 << 16 // more than the pipe can hold
	n := 0
	for i := range tries {
		if h.order(order{Deadline: int64(1000 + i%1000)}) {
			n++
		}
	}
	_ = w.Close()
	arrived := 0
	for lines := json.NewDecoder(r); ; arrived++ {
		var o order
		if err := lines.Decode(&o); errors.Is(err, io.EOF) {
			break
		} else if err != nil || o.Deadline != int64(1000+arrived%1000) {
			t.Fatalf("order %d is %+v, %v", arrived, o, err)
		}
	}
	if arrived != n || n < 100 || n == tries {
		t.Errorf("%d orders arrived, %d were sent, of %d", arrived, n, tries)
	}
}
