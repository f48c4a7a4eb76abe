package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/testkit/freeport"
)

// main1 runs the program within the process.
func main1(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return run(ctx, args, strings.NewReader(""), stdout, stderr)
}

// finished is all that a run of the program leaves.
type finished struct {
	status         int
	stdout, stderr string
}

// invoke runs the program within the process, and checks that it shows no password.
func invoke(t *testing.T, args ...string) finished {
	t.Helper()
	var stdout, stderr strings.Builder
	status := main1(t.Context(), args, &stdout, &stderr)
	noSecret(t, stdout.String()+stderr.String())
	return finished{status, stdout.String(), stderr.String()}
}

const password = "s3cret"

func noSecret(t *testing.T, text string) {
	t.Helper()
	for _, secret := range []string{password, "an0ther"} {
		if strings.Contains(text, secret) {
			t.Errorf("a password is shown: %s", text)
		}
	}
}

// has checks that a text has all of the parts.
func has(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("nothing of %q in\n%.2000s", p, text)
		}
	}
}

// tcpNodes starts servers with a password, and returns the value of --nodes for them.
func tcpNodes(t *testing.T, n int) ([]*embedded.Server, string) {
	t.Helper()
	servers := make([]*embedded.Server, n)
	urls := make([]string, n)
	for i := range servers {
		s := embedded.Start("")
		s.Redis.RequireAuth(password)
		testkit.Must(t, s.Listen(), "listen")
		t.Cleanup(s.Close)
		servers[i], urls[i] = s, "redis://:"+password+"@"+s.Redis.Addr()
	}
	return servers, strings.Join(urls, ",")
}

func noKeys(t *testing.T, servers []*embedded.Server) {
	t.Helper()
	for i, s := range servers {
		if keys := s.Redis.Keys(); len(keys) > 0 {
			t.Errorf("node %d still has %q", i+1, keys)
		}
	}
}

func TestDemoNeedsNothing(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		o := invoke(t, "demo")
		if o.status != 0 || o.stderr != "" || strings.Contains(o.stdout, "\x1b") {
			t.Errorf("status %d, %s\n%q", o.status, o.stderr, o.stdout)
		}
		has(t, o.stdout, "contend", "killed", "freezes", "no quorum", "come back", "paused", "promises were kept")
		time.Sleep(2 * time.Second) // go-redis redials a dead node for up to a second
	})
}

// The demo gives real nodes little time to answer, so nothing else runs beside these tests.
func TestDemoOnRealNodes(t *testing.T) {
	for name, test := range map[string]struct {
		paused         func(servers []*embedded.Server, interrupt func()) // runs when a holder is paused
		status         int
		stdout, stderr string
		not            string // in stdout
	}{
		"it harms no node and leaves no key": {
			paused: func([]*embedded.Server, func()) {}, stdout: "promises were kept", not: "killed",
		},
		"a broken promise is exit status 1": {
			paused: func(servers []*embedded.Server, _ func()) {
				testkit.Each(servers, func(s *embedded.Server) { s.Redis.FlushAll() })
			},
			status: 1, stdout: "BROKEN", stderr: "a promise was broken", not: "killed",
		},
		"an interrupt ends it cleanly": {
			paused: func(_ []*embedded.Server, interrupt func()) { interrupt() },
			status: 130, stderr: "interrupted", not: "BROKEN",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers, nodes := tcpNodes(t, 3)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			var stdout, stderr strings.Builder
			cue := &testkit.Cue{Writer: &stdout, Text: "is paused", Do: func() { test.paused(servers, interrupt) }}
			status := main1(ctx, []string{"demo", "--nodes", nodes}, cue, &stderr)
			testkit.Equal(t, status, test.status, "status of\n%s\n%s", &stdout, &stderr)
			has(t, stdout.String(), test.stdout)
			has(t, stderr.String(), test.stderr)
			if strings.Contains(stdout.String(), test.not) {
				t.Errorf("%q in\n%s", test.not, &stdout)
			}
			noKeys(t, servers)
		})
	}
}

func TestUnusableNodesAreExitStatus1AndALine(t *testing.T) {
	closed, err := freeport.Addr()
	testkit.Must(t, err, "a closed port")
	servers, nodes := tcpNodes(t, 2)
	wrong, _ := tcpNodes(t, 1)
	o := invoke(t, "demo", "--nodes", nodes+",redis://:an0ther@"+closed+",redis://:an0ther@"+wrong[0].Redis.Addr())
	testkit.Equal(t, o.status, 1, "status")
	has(t, o.stderr, "2 of 4 nodes cannot be used", closed, "refused", wrong[0].Redis.Addr(), "WRONGPASS")
	testkit.Equal(t, strings.Count(o.stderr, "\n"), 1, "lines of the error")
	noKeys(t, servers)
}

func TestBadUseIsToldByTheExitStatusAndNamesTheFix(t *testing.T) {
	nobody := func(args ...string) []string {
		args = append(args, "--nodes", "redis://127.0.0.1:1")
		if args[0] == "run" {
			args = append(args, "--", "true")
		}
		return args
	}
	for _, test := range []struct {
		args   []string
		status int
		want   string
	}{
		{nil, exitUsage, "quorumlock demo"},
		{[]string{"dmeo"}, exitUsage, "demo"},
		{[]string{"redis://:s3cret@h"}, exitUsage, "demo"},
		{[]string{"--verbose", "demo"}, exitUsage, "demo"},
		{[]string{"demo", "--verbose"}, exitUsage, "demo -h"},
		{[]string{"demo", "--redis://:s3cret@h"}, exitUsage, "demo -h"},
		{[]string{"demo", "redis://:s3cret@h"}, exitUsage, "--nodes"},
		{[]string{"demo", "--nodes"}, exitUsage, "--nodes"},
		{[]string{"demo", "--nodes", ""}, exitUsage, "redis://"},
		{[]string{"demo", "--nodes", "localhost:6379"}, exitUsage, "redis://"},
		{[]string{"demo", "--nodes", "redis://:s3cret@h redis://:s3cret@i"}, exitUsage, "part 1 of 1 has several URLs: separate them by commas"},
		{[]string{"demo", "--nodes", "redis://:s3cret@hredis://:s3cret@i"}, exitUsage, "part 1 of 1 has several URLs: separate them by commas"},
		{[]string{"run", "--nodes", "redis://h", "a\nb", "--try", "--", "true"}, exitRunFailed, "has a line break or another control character"},
		{[]string{"run", "--nodes", "redis://h", "x", "--every", "1h", "--wait", "30m", "--", "true"}, exitRunFailed, "use a --wait below 6m0s"},
		{[]string{"check", "--nodes", "redis://:s3cret@h", "redis://:s3cret@i"}, exitUsage, "separate the URLs by commas"},
		{[]string{"run", "--nodes", "redis://:s3cret@h", "redis://:s3cret@i", "x", "--try", "--", "true"}, exitRunFailed, "separate the URLs by commas"},
		{[]string{"demo", "--nodes", "redis://:s3cret@h:99999"}, exitUsage, "port 99999: use 1 to 65535"},
		{[]string{"run", "x", "ls", "-la", "--nodes", "redis://:s3cret@h"}, exitRunFailed, "put -- before the command"},
		{[]string{"demo", "--nodes", "redis://:s3cret@h,"}, exitUsage, "part 2 of 2"},
		{[]string{"demo", "--nodes", "redis://:an0,s3cret:x@h"}, exitUsage, "%2C"},
		{[]string{"demo", "--nodes", "redis://:s3cret@h:port"}, exitUsage, "percent-encode"},
		{[]string{"demo", "--nodes", "redis://:s3cret@h:1,redis://:s3cret@h:1"}, exitUsage, "given twice"},
		{[]string{"check"}, exitUsage, "--nodes redis://"},
		{[]string{"inspect"}, exitUsage, "inspect -h"},
		{[]string{"inspect", "", "--nodes", "redis://h"}, exitUsage, "empty"},
		{[]string{"inspect", "x", "--nodes", "redis://h", "--nodes-file", "f"}, exitUsage, "one of them"},
		{[]string{"inspect", "x", "--nodes-file", "/nonexistent"}, exitUsage, "no such file"},
		{[]string{"inspect", "quorumlock_x", "--nodes", "redis://h"}, exitUsage, "another beginning"},
		{[]string{"list", "--nodes", "redis://h", "--limit", "-1"}, exitUsage, "0 for all"},
		{[]string{"list", "--nodes", "redis://h", "--tls-cert", "f"}, exitUsage, "give both"},
		{[]string{"list", "--nodes", "redis://h", "--node-timeout", "-1s"}, exitUsage, "positive"},
		{[]string{"top", "--nodes", "redis://h", "--interval", "1ms"}, exitUsage, "200ms"},
		{[]string{"top", "--nodes", "redis://h", "--limit", "0"}, exitUsage, "1 to 10000"},
		{[]string{"unlock", "x", "--nodes", "redis://h"}, exitUsage, "--force"},
		{[]string{"unlock", "x", "--force", "--json", "--nodes", "redis://h"}, exitUsage, "--yes"},
		{[]string{"bench", "--nodes", "redis://h", "--duration", "1h"}, exitUsage, "1s to 5m"},
		{[]string{"bench", "--nodes", "redis://h", "--callers", "0"}, exitUsage, "1 to 1000"},
		{[]string{"bench", "--nodes", "redis://h", "--callers", "1001"}, exitUsage, "--callers 1001: use 1 to 1000, or with --burst"},
		{[]string{"bench", "--nodes", "redis://h", "--burst", "--callers", "0"}, exitUsage, "--callers 0: use 1"},
		{[]string{"bench", "--nodes", "redis://h", "--burst", "--callers", "100001"}, exitUsage, "1 to 100000"},
		{[]string{"bench", "--nodes", "redis://h", "--burst", "--callers", "many"}, exitUsage, "--callers: expected"},
		{[]string{"bench", "--nodes", "redis://h", "--burst", "--duration", "0s"}, exitUsage, "1s to 5m"},
		{[]string{"dev", "--nodes", "0"}, exitUsage, "dev: --nodes 0: use 1 to 100"},
		{[]string{"dev", "--nodes", "many"}, exitUsage, "--nodes: expected"},
		{[]string{"dev", "--nodes", "redis://:s3cret@h"}, exitUsage, "such as --nodes 3"},
		{[]string{"dev", "redis://:s3cret@h"}, exitUsage, "leave out all URLs"},
		{[]string{"dev", "--port", "-1"}, exitUsage, "--port -1: use 1 to 65533 for 3 nodes, or 0"},
		{[]string{"dev", "--port", "65534"}, exitUsage, "--port 65534: use 1 to 65533 for 3 nodes, or 0"},
		{[]string{"completion", "tcsh"}, exitUsage, "bash"},
		{[]string{"acl", "--user", ""}, exitUsage, `--user "": use 1 to 63 letters`},
		{[]string{"acl", "--user", "a.b"}, exitUsage, `--user "a.b": use 1 to 63 letters, digits, underscores and hyphens`},
		{[]string{"acl", "--prefix", "a b:"}, exitUsage, "contains a space or a control character: use a prefix without"},
		{[]string{"acl", "--prefix", "a\u202e:"}, exitUsage, `--prefix "a\u202e:" has characters that a terminal does not show: use others`},
		{[]string{"acl", "--prefix", "quorumlock_x:"}, exitUsage, "use a prefix with another beginning"},
		{[]string{"acl", "--also", "all"}, exitUsage, `--also must be one of "check","list","database" but got "all"`},
		{[]string{"acl", "--server", "5"}, exitUsage, `--server must be one of "7.2","7.0","6.2","6.0" but got "5"`},
		{[]string{"acl", "--password-file", "/nonexistent"}, exitUsage, "--password-file: open /nonexistent: no such file"},
		{[]string{"acl", "--password-file", "-"}, exitUsage, "--password-file: the first line of stdin has 0 bytes: use at least 8"},
		{[]string{"acl", "x"}, exitUsage, "acl -h"},
		{[]string{"help", "dmeo"}, exitUsage, "demo"},
		{[]string{"check", "--nodes", "redis://:s3cret@h", "--quorum", "2"}, exitUsage, "WithQuorum(2)"},
		{[]string{"check", "--nodes", "redis://:s3cret@h", "--restart-guard", "1"}, exitUsage, "check -h"},
		{[]string{"check", "--nodes", "redis://:s3cret@h", "--restart-guard", "-1s"}, exitUsage, "WithRestartGuard(-1s)"},
		{[]string{"serve", "--nodes", "redis://h", "--listen", "0.0.0.0:0"}, exitUsage, "is not loopback, so others could look: give --password-file"},
		{[]string{"serve", "--nodes", "redis://h", "--listen", ":0"}, exitUsage, "is not loopback"},
		{[]string{"serve", "--nodes", "redis://h", "--listen", "nowhere"}, exitUsage, "use a host and a port"},
		{[]string{"serve", "--nodes", "redis://h", "--password-file", "/nonexistent"}, exitUsage, "no such file"},
		{[]string{"serve", "--nodes", "redis://h", "--https-cert", "f"}, exitUsage, "give both"},
		{[]string{"serve", "--nodes", "redis://h", "--https-client-ca", "f"}, exitUsage, "needs HTTPS"},
		{[]string{"serve", "--nodes", "redis://h", "--interval", "1ms"}, exitUsage, "at least 200ms"},
		{[]string{"serve", "--nodes", "redis://h", "--metrics-lock", "x", "--metrics-lock", "x"}, exitUsage, "given twice"},
		{[]string{"serve", "--demo", "--nodes", "redis://h"}, exitUsage, "leave out --nodes"},
		{[]string{"serve", "--demo", "--prefix", "x:"}, exitUsage, "leave out --nodes and all other flags"},
		{[]string{"run", "a"}, exitRunFailed, "give it after --"},
		{nobody("run", ""), exitRunFailed, "empty"},
		{nobody("run", "a", "--ttl", "10ms"), exitRunFailed, "at least 1s"},
		{nobody("run", "a", "--try", "--wait", "1s"), exitRunFailed, "--try and --wait are both given"},
		{nobody("run", "a", "--grace", "9s"), exitRunFailed, "use at most 4s"},
		{nobody("run", "a", "--read", "--slots", "2"), exitRunFailed, "--read and --slots are both given"},
		{nobody("run", "a", "--every", "1h", "--at-least", "1m"), exitRunFailed, "use one of them"},
		{nobody("run", "a", "--release-on-failure"), exitRunFailed, "leave it out"},
		{nobody("run", "a", "--every", "-1m"), exitRunFailed, "use the period"},

		// A 0 on the command line is a value, and not a missing flag. The node does not exist.
		{nobody("run", "a", "--slots", "0"), exitRunFailed, "--slots 0: use 1 to 1000"},
		{nobody("run", "a", "--slots", "1001"), exitRunFailed, "--slots 1001: use 1 to 1000"},
		{nobody("run", "a", "--slots", "0", "--read"), exitRunFailed, "--slots 0"},
		{nobody("run", "a", "--grace", "-1s"), exitRunFailed, "--grace -1s is negative"},
		{nobody("run", "a", "--wait", "0s"), exitNoQuorum, "no quorum"},
		// a script has no time left
		{nobody("run", "a", "--wait", "-1s"), exitNoQuorum, "no quorum"},
		{nobody("run", "a", "--wait", "0s", "--try"), exitNoQuorum, "no quorum"},
		{nobody("list", "--quorum", "0"), exitUsage, "WithQuorum(0)"},
		{nobody("list", "--restart-guard", "0s"), exitUsage, "WithRestartGuard(0s)"},
		{nobody("list", "--node-timeout", "0s"), exitUsage, "--node-timeout 0s: use a positive duration"},
		{nobody("top", "-n", "0"), exitUsage, "-n 0: use a positive number"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			o := invoke(t, test.args...)
			testkit.Equal(t, o.status, test.status, "status")
			testkit.Equal(t, o.stdout, "", "stdout")
			has(t, o.stderr, test.want)
		})
	}
}

func TestHelpIsOnStdout(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"-h"}, {"--help"}, {"demo", "-h"}, {"demo", "--help"}, {"check", "-h"}, {"help", "run"}, {"run", "x", "-h", "--", "y"}} {
		o := invoke(t, args...)
		testkit.Equal(t, o.status, 0, "status of %q", args)
		has(t, o.stdout, "quorumlock")
	}
}

func TestColorCanBeOptedOutOf(t *testing.T) {
	terminal, err := os.Open(os.DevNull) // a character device, as a terminal is
	testkit.Must(t, err, "open")
	defer terminal.Close() //nolint:errcheck // it was only looked at
	for _, c := range []struct {
		name, term, noColor string
		out                 io.Writer
		want                bool
	}{
		{"a terminal", "xterm", "", terminal, true},
		{"NO_COLOR", "xterm", "1", terminal, false},
		{"a dumb terminal", "dumb", "", terminal, false},
		{"a buffer", "xterm", "", &bytes.Buffer{}, false},
	} {
		t.Setenv("TERM", c.term)
		t.Setenv("NO_COLOR", c.noColor)
		testkit.Equal(t, wantsColor(c.out), c.want, "colour with %s", c.name)
	}
}
