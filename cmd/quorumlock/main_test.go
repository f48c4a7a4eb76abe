package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// main1 runs the program within the process.
func main1(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return run(ctx, args, strings.NewReader(""), stdout, stderr)
}

const password = "s3cret"

// tcpNodes starts servers with a password, and returns the value of --nodes for them.
func tcpNodes(t *testing.T, n int) ([]*embedded.Server, string) {
	t.Helper()
	servers := make([]*embedded.Server, n)
	urls := make([]string, n)
	for i := range servers {
		s := embedded.Start("")
		s.Redis.RequireAuth(password)
		if err := s.Listen(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		servers[i], urls[i] = s, "redis://:"+password+"@"+s.Redis.Addr()
	}
	return servers, strings.Join(urls, ",")
}

// cue is an output that calls a function when a line with some text is printed.
type cue struct {
	bytes.Buffer
	text string
	do   func()
}

func (c *cue) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(c.text)) {
		c.do()
	}
	return c.Buffer.Write(line)
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
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var stdout, stderr strings.Builder
		if code := main1(t.Context(), []string{"demo"}, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
			t.Errorf("status %d, %s\n%s", code, stderr.String(), stdout.String())
		}
		for _, want := range []string{"contend", "killed", "freezes", "no quorum", "come back", "paused", "promises were kept"} {
			if !strings.Contains(stdout.String(), want) {
				t.Errorf("nothing of %q in\n%s", want, stdout.String())
			}
		}
		if strings.Contains(stdout.String(), "\x1b") {
			t.Error("colours, and no terminal")
		}
		time.Sleep(2 * time.Second) // go-redis redials a dead node for up to a second
	})
}

// The demo gives real nodes little time to answer, so nothing else runs beside these tests.
func TestDemoOnRealNodes(t *testing.T) {
	for name, test := range map[string]func(*testing.T){
		"it leaves no key":                  demoLeavesNoKey,
		"a broken promise is exit status 1": brokenPromiseIsExitStatus1,
		"an interrupt ends it cleanly":      interruptEndsTheDemoCleanly,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

func demoLeavesNoKey(t *testing.T) {
	servers, nodes := tcpNodes(t, 3)
	var stdout, stderr strings.Builder
	if code := main1(t.Context(), []string{"demo", "--nodes", nodes}, &stdout, &stderr); code != 0 {
		t.Errorf("status %d, %s\n%s", code, stderr.String(), stdout.String())
	}
	if strings.Contains(stdout.String(), "killed") {
		t.Errorf("it harms real nodes:\n%s", stdout.String())
	}
	noKeys(t, servers)
}

func brokenPromiseIsExitStatus1(t *testing.T) {
	servers, nodes := tcpNodes(t, 3)
	stdout := &cue{text: "is paused", do: func() {
		for _, s := range servers {
			s.Redis.FlushAll()
		}
	}}
	var stderr strings.Builder
	if code := main1(t.Context(), []string{"demo", "--nodes=" + nodes}, stdout, &stderr); code != 1 {
		t.Errorf("status %d, %s\n%s", code, stderr.String(), stdout)
	}
	if !strings.Contains(stdout.String(), "BROKEN") || !strings.Contains(stderr.String(), "a promise was broken") {
		t.Errorf("nothing tells of it: %s\n%s", stderr.String(), stdout)
	}
}

func interruptEndsTheDemoCleanly(t *testing.T) {
	servers, nodes := tcpNodes(t, 3)
	ctx, interrupt := context.WithCancel(t.Context())
	stdout := &cue{text: "is paused", do: interrupt}
	var stderr strings.Builder
	if code := main1(ctx, []string{"demo", "--nodes", nodes}, stdout, &stderr); code != 130 {
		t.Errorf("status %d, want 130: %s\n%s", code, stderr.String(), stdout)
	}
	if !strings.Contains(stderr.String(), "interrupted") || strings.Contains(stdout.String(), "BROKEN") {
		t.Errorf("an interrupt is no broken promise: %s\n%s", stderr.String(), stdout)
	}
	noKeys(t, servers)
}

func TestUnusableNodeIsExitStatus1(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	servers, nodes := tcpNodes(t, 2)
	wrong, _ := tcpNodes(t, 1)
	for _, test := range []struct{ name, addr, want string }{
		{"refused", closed, "refused"},
		{"wrong password", wrong[0].Redis.Addr(), "WRONGPASS"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var stdout, stderr strings.Builder
			if code := main1(t.Context(), []string{"demo", "--nodes", nodes + ",redis://:an0ther@" + test.addr}, &stdout, &stderr); code != 1 {
				t.Errorf("status %d", code)
			}
			for _, want := range []string{"1 of 3 nodes", test.addr, test.want} {
				if !strings.Contains(stderr.String(), want) {
					t.Errorf("nothing of %q in %s", want, stderr.String())
				}
			}
			noSecret(t, stdout.String()+stderr.String())
			noKeys(t, servers)
		})
	}
}

func noSecret(t *testing.T, text string) {
	t.Helper()
	for _, secret := range []string{password, "an0ther"} {
		if strings.Contains(text, secret) {
			t.Errorf("a password is shown: %s", text)
		}
	}
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
		{[]string{"completion", "tcsh"}, exitUsage, "bash"},
		{[]string{"help", "dmeo"}, exitUsage, "demo"},
		{[]string{"check", "--nodes", "redis://:s3cret@h", "--quorum", "2"}, exitUsage, "WithQuorum(2)"},
		{[]string{"check", "--nodes", "redis://:s3cret@h", "--restart-guard", "1"}, exitUsage, "check -h"},
		{[]string{"check", "--nodes", "redis://:s3cret@h", "--restart-guard", "-1s"}, exitUsage, "WithRestartGuard(-1s)"},

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
			var stdout, stderr strings.Builder
			if status := main1(t.Context(), test.args, &stdout, &stderr); status != test.status {
				t.Errorf("status %d, want %d", status, test.status)
			}
			if !strings.Contains(stderr.String(), test.want) || stdout.Len() > 0 {
				t.Errorf("nothing of %q in %s", test.want, stderr.String())
			}
			noSecret(t, stderr.String())
		})
	}
}

func TestHelpIsOnStdout(t *testing.T) {
	for _, args := range [][]string{{"help"}, {"-h"}, {"--help"}, {"demo", "-h"}, {"demo", "--help"}, {"check", "-h"}, {"help", "run"}, {"run", "x", "-h", "--", "y"}} {
		var stdout strings.Builder
		if code := main1(t.Context(), args, &stdout, io.Discard); code != 0 || !strings.Contains(stdout.String(), "quorumlock") {
			t.Errorf("%q: status %d, %s", args, code, stdout.String())
		}
	}
}

func TestColorCanBeOptedOutOf(t *testing.T) {
	terminal, err := os.Open(os.DevNull) // a character device, as a terminal is
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close() //nolint:errcheck // it was only looked at
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	if !wantsColor(terminal) {
		t.Error("no colour on a terminal")
	}
	t.Setenv("NO_COLOR", "1")
	if wantsColor(terminal) {
		t.Error("colour despite NO_COLOR")
	}
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "dumb")
	if wantsColor(terminal) {
		t.Error("colour on a dumb terminal")
	}
	if wantsColor(&bytes.Buffer{}) {
		t.Error("colour in a buffer")
	}
}
