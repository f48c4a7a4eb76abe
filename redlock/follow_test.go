package redlock_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// town has servers by host, as one client reaches them.
type town map[string]*embedded.Server

// build starts servers.
func build(t *testing.T, hosts ...string) town {
	t.Helper()
	w := make(town)
	for _, h := range hosts {
		w[h] = embedded.Start(h)
		t.Cleanup(w[h].Close)
	}
	return w
}

// seen returns the town with paths to the servers that fail for one client alone.
func (w town) seen(t *testing.T) town {
	paths := make(town)
	for h, s := range w {
		paths[h] = s.Path(h)
		t.Cleanup(paths[h].Close)
	}
	return paths
}

func (w town) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(addr)
	if s := w[host]; s != nil {
		return s.DialContext(ctx, network, addr)
	}
	return nil, errors.New("no such host: " + addr)
}

// client returns a client with the settings in a file.
func (w town) client(t *testing.T, file string, opts ...quorumlock.Option) (*redlock.Client, *testkit.Log) {
	t.Helper()
	t.Setenv(options.FileVariable, file)
	log, logging := testkit.Logger()
	c, err := redlock.DialEnv(append(opts, logging, redlock.WithNodeOptions(node.WithDialer(w.dial)))...)
	testkit.Must(t, err, "DialEnv")
	t.Cleanup(func() { testkit.OK(t, c.Close(), "Close") })
	return c, log
}

// inTown runs a test with a settings file. The environment belongs to the process, so that these tests
// are not parallel.
func inTown(t *testing.T, f func(t *testing.T, file string)) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "settings")
	t.Setenv(options.FileVariable, "")
	synctest.Test(t, func(t *testing.T) { f(t, file) })
}

const guardLines = "QUORUMLOCK_RESTART_GUARD=2s\nQUORUMLOCK_TTL=2s\n"

// write writes a settings file with nodes at hosts.
func write(t *testing.T, file, more string, hosts ...string) {
	t.Helper()
	text := "# ours\n\n" + more + "QUORUMLOCK_NODES = redis://" + strings.Join(hosts, ",redis://") + "\n"
	testkit.Must(t, os.WriteFile(file, []byte(text), 0o600), "WriteFile")
}

// grants is how many locks a server was asked for.
func grants(s *embedded.Server) int { return s.Ran("acquire", "renew", "release") }

func TestANodeIsReplacedWhileLeasesGoOn(t *testing.T) {
	inTown(t, func(t *testing.T, file string) {
		w := build(t, "a", "b", "c", "d")
		write(t, file, guardLines, "a", "b", "c")
		one, log := w.client(t, file)
		other, _ := w.client(t, file)
		lease := testkit.Lock(t, one.Mutex("held"))
		early := testkit.Lock(t, other.Mutex("free"))
		testkit.Unlock(t, early)
		w["c"].Kill()
		write(t, file, guardLines, "a", "b", "d")
		time.Sleep(20 * time.Second)
		testkit.Held(t, lease)
		testkit.HoldsAll(t, []*embedded.Server{w["a"], w["b"], w["d"]}, lease)
		for _, c := range []*redlock.Client{one, other} {
			finds(t, check(t, c, true))
		}
		w["a"].Kill() // now d counts
		late := testkit.Lock(t, other.Mutex("free", quorumlock.WithWait(time.Minute)))
		testkit.Rises(t, early, late)
		testkit.UnlockAll(t, late, lease)
		if n := len(log.Lines("a node is replaced", "old=c:6379", "new=d:6379")); n != 1 {
			t.Errorf("logged %d times", n)
		}
		// It no longer goes to c, whatever c does.
		w["c"].Restart(true)
		before := grants(w["c"])
		testkit.Unlock(t, testkit.Lock(t, one.Mutex("free")))
		testkit.Equal(t, grants(w["c"]), before, "calls to the old server")
	})
}

// Whatever forbids a step is reported once, and nothing changes.
func TestAFileThatCannotBeFollowedChangesNothing(t *testing.T) {
	const plain = "QUORUMLOCK_NODES=redis://a,redis://b,redis://"
	for name, tt := range map[string]struct {
		more   string // lines of the file
		change func(t *testing.T, w town, file string)
		want   string // of the log
	}{
		"the old server answers": {guardLines, func(t *testing.T, w town, file string) {
			write(t, file, guardLines, "a", "b", "d")
		}, "d:6379 is to replace c:6379, which still answers: stop it for good first"},
		"the old server is alive and refuses": {guardLines, func(t *testing.T, w town, file string) {
			w["c"].Refuse("NOPERM no")
			write(t, file, guardLines, "a", "b", "d")
		}, "which still answers"},
		"no guard": {"", func(t *testing.T, w town, file string) {
			w["c"].Kill()
			write(t, file, "", "a", "b", "d")
		}, "there is no restart guard"},
		"two nodes": {guardLines, func(t *testing.T, w town, file string) {
			w["c"].Kill()
			write(t, file, guardLines, "a", "d", "e")
		}, "nodes 2 and 3 both have another address: change one node at a time"},
		"another order": {guardLines, func(t *testing.T, w town, file string) {
			write(t, file, guardLines, "a", "c", "b")
		}, "nodes 2 and 3 both have another address"},
		"one node more": {guardLines, func(t *testing.T, w town, file string) {
			write(t, file, guardLines, "a", "b", "c", "d")
		}, "there were 3 nodes and are 4"},
		"another database": {guardLines, func(t *testing.T, w town, file string) {
			write(t, file, guardLines, "a", "b", "c/1")
		}, "node 3 of 3: more than its host, port and credentials has changed"},
		"another quorum": {guardLines, func(t *testing.T, w town, file string) {
			w["c"].Kill()
			write(t, file, guardLines+"QUORUMLOCK_QUORUM=3\n", "a", "b", "d")
		}, "QUORUMLOCK_QUORUM was 0 and is 3"},
		"a quorum of all nodes": {guardLines + "QUORUMLOCK_QUORUM=3\n", func(t *testing.T, w town, file string) {
			w["c"].Kill()
			write(t, file, guardLines+"QUORUMLOCK_QUORUM=3\n", "a", "b", "d")
		}, "a quorum of 3 needs all nodes"},
		"another guard": {guardLines, func(t *testing.T, w town, file string) {
			write(t, file, "QUORUMLOCK_RESTART_GUARD=3s\nQUORUMLOCK_TTL=2s\n", "a", "b", "c")
		}, "QUORUMLOCK_RESTART_GUARD was 2s and is 3s"},
		"half written": {guardLines, func(t *testing.T, w town, file string) {
			w["c"].Kill()
			testkit.Must(t, os.WriteFile(file, []byte(guardLines+plain+"d"), 0o600), "WriteFile")
		}, "it does not end with a newline, as if half written"},
		"empty": {guardLines, func(t *testing.T, w town, file string) {
			testkit.Must(t, os.WriteFile(file, nil, 0o600), "WriteFile")
		}, "it is empty"},
		"gone": {guardLines, func(t *testing.T, w town, file string) {
			testkit.Must(t, os.Remove(file), "Remove")
		}, "no such file"},
		"an unknown name": {guardLines, func(t *testing.T, w town, file string) {
			w["c"].Kill()
			write(t, file, guardLines+"QUORUMLOCK_QUORM=2\n", "a", "b", "d")
		}, "QUORUMLOCK_QUORM cannot be set in a file"},
		"an address that is another node's": {guardLines, func(t *testing.T, w town, file string) {
			w["c"].Kill()
			write(t, file, guardLines, "a", "b", "b")
		}, "nodes 3 and 2 both have the address b:6379"},
		"a second address of another node": {guardLines, func(t *testing.T, w town, file string) {
			w["c"].Kill()
			write(t, file, guardLines, "a", "b", "b2")
		}, "is the same server as b:6379"},
		"no new server": {guardLines, func(t *testing.T, w town, file string) {
			w["c"].Kill()
			w["d"].Kill()
			write(t, file, guardLines, "a", "b", "d")
		}, "d:6379, which is to replace c:6379, does not grant locks"},
		"no majority without it": {guardLines, func(t *testing.T, w town, file string) {
			w["b"].Kill()
			w["c"].Kill()
			write(t, file, guardLines, "a", "b", "d")
		}, "while the others are no quorum"},
		"a bad URL": {guardLines, func(t *testing.T, w town, file string) {
			w["c"].Kill()
			write(t, file, guardLines, "a", "b", "user:s3cret@d:port")
		}, "node 3 of 3: its URL cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			inTown(t, func(t *testing.T, file string) {
				w := build(t, "a", "b", "c", "d", "e")
				w["b2"] = w["b"].Path("b2")
				t.Cleanup(w["b2"].Close)
				write(t, file, tt.more, "a", "b", "c")
				c, log := w.client(t, file)
				testkit.Unlock(t, testkit.Lock(t, c.Mutex("x")))
				tt.change(t, w, file)
				time.Sleep(30 * time.Second)
				if n := len(log.Lines("level=WARN", "the change does not count yet", tt.want)); n != 1 || len(log.Lines("s3cret")) > 0 {
					t.Errorf("logged %d times, want once:\n%s", n, strings.Join(log.Lines(), ""))
				}
				_, _ = c.Mutex("x").TryLock(t.Context()) // without a majority it fails
				testkit.Equal(t, len(log.Lines("a node is being replaced")), 0, "lines of a step")
				if w["d"].Ran("acquire", "renew") > 0 {
					t.Error("the new server was asked for a lock")
				}
			})
		})
	}
}

// One client cannot reach the old server, which still serves another. While that one may hold votes
// of it, the new server must not vote.
func TestAReplacementWaitsForClientsOfTheOldServer(t *testing.T) {
	inTown(t, func(t *testing.T, file string) {
		w := build(t, "a", "b", "c", "d")
		const longer = "QUORUMLOCK_RESTART_GUARD=10s\n" // than a client takes to leave
		late := file + "-late"                          // as if it came later to the other machine
		write(t, file, longer, "a", "b", "c")
		write(t, late, longer, "a", "b", "c")
		mine := w.seen(t)
		one, log := mine.client(t, file)
		other, otherLog := w.client(t, late)
		testkit.Unlock(t, testkit.Lock(t, one.Mutex("x")))
		testkit.Unlock(t, testkit.Lock(t, other.Mutex("x")))
		mine["c"].Kill()
		write(t, file, longer, "a", "b", "d")
		time.Sleep(time.Minute)
		if len(log.Lines("still has another list of nodes, quorum or restart guard")) != 1 || len(log.Lines("a node is replaced")) > 0 {
			t.Errorf("it did not wait for the other client:\n%s", strings.Join(log.Lines(), ""))
		}
		// The other follows, too, but c still answers it.
		write(t, late, longer, "a", "b", "d")
		time.Sleep(time.Minute)
		if len(otherLog.Lines("which still answers")) != 1 || len(log.Lines("a node is replaced")) > 0 {
			t.Errorf("one of them went on:\n%s", strings.Join(append(log.Lines(), otherLog.Lines()...), ""))
		}
		testkit.Equal(t, grants(w["d"]), 0, "calls to the new server")
		// The old votes of c are worth something until the guard's time after the last of them.
		held := testkit.Lock(t, other.Mutex("x", quorumlock.WithoutRenewal()))
		w["c"].Kill()
		for len(log.Lines("a node is replaced")) == 0 && held.Context().Err() == nil {
			time.Sleep(100 * time.Millisecond)
		}
		if held.Context().Err() == nil {
			t.Error("replaced while a lease with a vote of the old server goes on")
		}
		time.Sleep(time.Minute)
		for _, l := range []*testkit.Log{log, otherLog} {
			testkit.Equal(t, len(l.Lines("a node is replaced")), 1, "lines of a replacement")
		}
		finds(t, check(t, one, true))
	})
}

// The file may go on to the next node before the last client has ended the replacement. The clients
// then wait for one another, but not forever.
func TestClientsOneReplacementApartComeTogether(t *testing.T) {
	inTown(t, func(t *testing.T, file string) {
		w := build(t, "a", "b", "c", "d", "e", "f", "g")
		five := []string{"a", "b", "c", "d", "e"}
		late := file + "-late"
		for _, name := range []string{file, late} {
			write(t, name, guardLines, five...)
		}
		theirs := w.seen(t)
		one, log := w.client(t, file)
		other, otherLog := theirs.client(t, late)
		testkit.Unlock(t, testkit.Lock(t, one.Mutex("x")))
		testkit.Unlock(t, testkit.Lock(t, other.Mutex("x")))
		w["a"].Kill()
		for _, name := range []string{file, late} {
			write(t, name, guardLines, "f", "b", "c", "d", "e")
		}
		replaced := func(l *testkit.Log) int { return len(l.Lines("a node is replaced")) }
		for len(otherLog.Lines("a node is being replaced")) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		theirs["f"].Kill() // the other cannot end it
		for replaced(log) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		w["b"].Kill()
		for _, name := range []string{file, late} {
			write(t, name, guardLines, "f", "g", "c", "d", "e")
		}
		for len(log.Lines("a node is being replaced")) < 2 {
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(20 * time.Second)
		if replaced(log) != 1 || replaced(otherLog) != 0 {
			t.Errorf("replaced %d and %d, want one to wait for the other", replaced(log), replaced(otherLog))
		}
		for _, reason := range []string{"f:6379, which replaces a:6379, does not grant locks", "f:6379 does not replace a:6379 yet"} {
			testkit.Equal(t, len(otherLog.Lines(reason)), 1, "lines with a reason of two")
		}
		theirs["f"].Restart(true)
		time.Sleep(time.Minute)
		if replaced(log) != 2 || replaced(otherLog) != 2 {
			t.Errorf("replaced %d and %d, want 2 and 2:\n%s\n%s", replaced(log), replaced(otherLog), strings.Join(log.Lines(), ""), strings.Join(otherLog.Lines(), ""))
		}
		finds(t, check(t, one, true))
	})
}

// A client that has left the old server does not return, since others may have joined the new one.
func TestAnOldServerThatComesBackIsNotUsedAndHoldsUpTheReplacement(t *testing.T) {
	inTown(t, func(t *testing.T, file string) {
		w := build(t, "a", "b", "c", "d")
		write(t, file, guardLines, "a", "b", "c")
		c, log := w.client(t, file)
		testkit.Unlock(t, testkit.Lock(t, c.Mutex("x")))
		w["c"].Kill()
		write(t, file, guardLines, "a", "b", "d")
		for len(log.Lines("a node is being replaced")) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		w["c"].Restart(true)
		before := grants(w["c"])
		time.Sleep(time.Minute)
		testkit.Unlock(t, testkit.Lock(t, c.Mutex("x")))
		testkit.Equal(t, grants(w["c"]), before, "calls to the old server")
		testkit.Equal(t, grants(w["d"]), 0, "calls to the new server")
		testkit.Equal(t, len(log.Lines("answers again: stop it for good")), 1, "lines with the reason")
		w["c"].Kill()
		time.Sleep(10 * time.Second)
		testkit.Equal(t, len(log.Lines("a node is replaced")), 1, "lines of a replacement")
	})
}

// A password in the file changes without a restart, and without the guard.
func TestNewCredentialsInTheFileCountForNewConnections(t *testing.T) {
	inTown(t, func(t *testing.T, file string) {
		w := build(t, "a")
		w["a"].Redis.RequireUserAuth("locker", "first")
		write(t, file, "", "locker:first@a")
		c, log := w.client(t, file)
		testkit.Unlock(t, testkit.Lock(t, c.Mutex("x")))
		write(t, file, "", "locker:second@a")
		w["a"].Redis.RequireUserAuth("locker", "second")
		time.Sleep(5 * time.Second)
		w["a"].Restart(true)
		testkit.Unlock(t, testkit.Lock(t, c.Mutex("x", quorumlock.WithWait(time.Minute))))
		testkit.Equal(t, len(log.Lines("does not count")), 0, "warnings")
	})
}

// Each program of a fleet that disagrees with one before it says so at its start.
func TestAClientWithOtherSettingsIsReportedAtTheStart(t *testing.T) {
	for name, tt := range map[string]struct {
		mine  string
		nodes []string
		want  string
	}{
		"the same":         {"", []string{"c", "a", "b"}, ""},
		"another quorum":   {"QUORUMLOCK_QUORUM=3\n", []string{"a", "b", "c"}, "3 nodes with a quorum of 2, instead of 3 with a quorum of 3"},
		"another guard":    {guardLines, []string{"a", "b", "c"}, "none, instead of 2s"},
		"another node":     {"", []string{"a", "b", "d"}, "another list of nodes is in use"},
		"another prefix":   {"QUORUMLOCK_PREFIX=x:\n", []string{"a", "b", "c"}, ""},
		"another database": {"", []string{"a", "b", "c/1"}, "another database is in use: number 0, instead of 1"},
	} {
		t.Run(name, func(t *testing.T) {
			inTown(t, func(t *testing.T, file string) {
				w := build(t, "a", "b", "c", "d")
				write(t, file, "", "a", "b", "c")
				first, _ := w.client(t, file)
				testkit.Unlock(t, testkit.Lock(t, first.Mutex("x")))
				own := file + "-own"
				write(t, own, tt.mine, tt.nodes...)
				c, log := w.client(t, own)
				time.Sleep(time.Minute)
				testkit.Equal(t, len(log.Lines("another client")), 0, "lines before the first connection")
				testkit.Unlock(t, testkit.Lock(t, c.Mutex("y")))
				time.Sleep(time.Minute)
				want := 0
				if tt.want != "" {
					want = 1
				}
				if n := len(log.Lines("level=WARN", "another client has other settings", tt.want)); n != want {
					t.Errorf("logged %d times, want %d:\n%s", n, want, strings.Join(log.Lines(), ""))
				}
			})
		})
	}
}

// Shutdown waits for leases, not for the goroutine that follows the file.
func TestShutdownDoesNotWaitForTheFile(t *testing.T) {
	inTown(t, func(t *testing.T, file string) {
		w := build(t, "a")
		write(t, file, "", "a")
		c, _ := w.client(t, file)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		testkit.OK(t, c.Shutdown(ctx), "Shutdown")
		testkit.Took(t, began, 0, time.Second, "Shutdown")
	})
}
