package redlock_test

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// This test uses sockets of the machine, and so its clock: a bubble cannot hold it.
func TestDialMakesAClientThatLocks(t *testing.T) {
	urls := make([]string, 3)
	servers := make([]*miniredis.Miniredis, 3)
	for i := range urls {
		servers[i] = miniredis.RunT(t)
		urls[i] = "redis://" + servers[i].Addr()
	}
	// The machine may be busy.
	c, err := redlock.Dial(urls, quorumlock.WithNodeTimeout(quorumlock.DefaultTTL))
	testkit.Must(t, err, "Dial")
	servers[2].Close() // a quorum is left
	lease := testkit.Lock(t, c.Mutex("x"))
	if _, err := c.Mutex("x").TryLock(t.Context()); err == nil {
		t.Error("it was locked twice")
	}
	testkit.Unlock(t, lease)
	testkit.OK(t, c.Close(), "Close")
}

func TestDialThatFailsSaysWhichURLAndLeavesNothingOpen(t *testing.T) {
	s := miniredis.RunT(t)
	eager := "redis://" + s.Addr() + "?min_idle_conns=2" // a node that connects before it is used
	for _, tt := range []struct {
		name string
		urls []string
		opts []quorumlock.Option
		want string
	}{
		{"no URLs", nil, nil, "quorumlock: redlock.Dial: no URLs: give at least one, and three or five"},
		{"an empty one", []string{eager, ""}, nil, "quorumlock: redlock.Dial: URL 2 of 2: quorumlock: node.Dial: the URL is empty"},
		{"one without a scheme", []string{eager, "h:6379", eager}, nil, "URL 2 of 3: quorumlock: node.Dial: the URL has no scheme: use redis://h:6379"},
		{"one with a bad port", []string{eager, "redis://user:s3cret@h:port"}, nil, "URL 2 of 2"},
		{"one twice", []string{eager, eager}, nil, "node 2, " + s.Addr() + ", is given twice"},
		{"a bad option", []string{eager}, []quorumlock.Option{quorumlock.WithTTL(-1)}, "WithTTL(-1ns) is too short"},
		{"a bad option of nodes", []string{eager}, []quorumlock.Option{redlock.WithNodeOptions(node.WithTimeout(-1))}, "URL 1 of 1: quorumlock: node " + s.Addr() + ": WithTimeout(-1ns)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := redlock.Dial(tt.urls, tt.opts...)
			if err == nil {
				_ = c.Close()
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%q does not say %q, or says a password", err, tt.want)
			}
			time.Sleep(50 * time.Millisecond) // for the connections to be there, if they come to be
			testkit.Equal(t, s.CurrentConnectionCount(), 0, "connections are left open")
		})
	}
}

// Options of locks are those of the client, and options of nodes reach each node.
func TestDialPassesOptionsOn(t *testing.T) {
	s := miniredis.RunT(t)
	s.RequireUserAuth("locker", "s3cret")
	var asked atomic.Int32
	c, err := redlock.Dial([]string{"redis://" + s.Addr()},
		quorumlock.WithTTL(time.Minute), quorumlock.WithLabel("billing"),
		redlock.WithNodeOptions(node.WithTimeout(20*time.Second)),
		nil,
		redlock.WithNodeOptions(node.WithCredentials(func(context.Context) (node.Credentials, error) {
			asked.Add(1)
			return node.Credentials{User: "locker", Password: "s3cret"}, nil
		})))
	testkit.Must(t, err, "Dial")
	defer c.Close() //nolint:errcheck // the test is over
	lock := c.Lockers("jobs:", quorumlock.WithNodeTimeout(20*time.Second))("report")
	lease := testkit.Lock(t, lock)
	if lease.Name() != "jobs:report" || lease.Owner().Label() != "billing" || time.Until(lease.ValidUntil()) < 50*time.Second || asked.Load() == 0 {
		t.Errorf("%v; the credentials were asked for %d times", lease, asked.Load())
	}
	testkit.Unlock(t, lease)
	// It inherits the client's options.
	both, err := multilock.New([]quorumlock.Locker{c.Mutex("a"), c.Mutex("b")})
	testkit.Must(t, err, "New")
	testkit.Unlock(t, testkit.Lock(t, both))
}

// An option of nodes means nothing once there are nodes.
func TestNodeOptionsAreRefusedElsewhere(t *testing.T) {
	n, err := node.Dial("redis://10.0.0.1")
	testkit.Must(t, err, "Dial")
	c, err := redlock.New([]*node.Node{n})
	testkit.Must(t, err, "New")
	defer c.Close() //nolint:errcheck // it was not used
	option := redlock.WithNodeOptions(node.WithTimeout(time.Second))
	_, ofNew := redlock.New([]*node.Node{n}, option)
	_, ofMutex := c.Mutex("x", option).TryLock(t.Context())
	for name, err := range map[string]error{"New": ofNew, "Mutex": ofMutex} {
		if !errors.Is(err, quorumlock.ErrMisuse) || !strings.Contains(err.Error(), "give the options to node.Dial") {
			t.Errorf("%s: %v, want ErrMisuse with the fix", name, err)
		}
	}
}

func TestDialEnvReadsTheVariablesOfTheTool(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nodes")
	testkit.Must(t, os.WriteFile(file, []byte("# ours\nredis://a\n\n redis://b \nredis://c/1\n"), 0o600), "WriteFile")
	bad := filepath.Join(t.TempDir(), "bad")
	testkit.Must(t, os.WriteFile(bad, []byte("redis://a\nuser:s3cret@b"), 0o600), "WriteFile")
	for _, tt := range []struct {
		name, list, file string
		want             string // of the error; "" if there is none
	}{
		{"a list", "redis://a, redis://b:1,rediss://user:s3cret@c/2", "", ""},
		{"a file", "", file, ""},
		{"both: the list counts", "redis://a", "/nowhere", ""},
		{"none", "", "", "quorumlock: redlock.DialEnv: no nodes: set QUORUMLOCK_NODES to their URLs, such as redis://10.0.0.1,"},
		{"a comma in a password", "redis://a,redis://user:s3,cret@b", "", "quorumlock: redlock.DialEnv: QUORUMLOCK_NODES: part 3 of 3 is no redis://"},
		{"a bad URL", "redis://a,redis://user:s3cret@b:port", "", "quorumlock: redlock.DialEnv: QUORUMLOCK_NODES: URL 2 of 2: quorumlock: node.Dial: the URL cannot be read"},
		{"a bad line", "", bad, "quorumlock: redlock.DialEnv: QUORUMLOCK_NODES_FILE: line 2 of " + bad},
		{"no file", "", "/nowhere", "quorumlock: redlock.DialEnv: QUORUMLOCK_NODES_FILE: open /nowhere: "},
		{"an empty file", "", "/dev/null", "QUORUMLOCK_NODES_FILE: /dev/null names no nodes: write one URL a line"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(options.NodesVariable, tt.list)
			t.Setenv(options.NodesFileVariable, tt.file)
			c, err := redlock.DialEnv(quorumlock.WithTTL(time.Minute))
			switch {
			case err == nil && tt.want == "":
				_ = c.Close()
			case err == nil:
				_ = c.Close()
				t.Errorf("accepted, want %q", tt.want)
			case tt.want == "" || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "s3"):
				t.Errorf("%q, want %q and no password", err, tt.want)
			case errors.Is(err, os.ErrNotExist) == errors.Is(err, quorumlock.ErrMisuse):
				t.Errorf("%v: is ErrMisuse %v", err, errors.Is(err, quorumlock.ErrMisuse))
			}
		})
	}
}

// The environment and the file have one vocabulary. Whatever is wrong in either, or contradicts the
// code, is named with its fix.
func TestDialEnvReadsWhatAFleetMustShare(t *testing.T) {
	const nodes = "QUORUMLOCK_NODES=redis://a,redis://b,redis://c\n"
	pem := filepath.Join(t.TempDir(), "no.pem")
	testkit.Must(t, os.WriteFile(pem, []byte("no\n"), 0o600), "WriteFile")
	for _, tt := range []struct {
		name string
		env  string // NAME=value, separated by spaces
		file string // FILE is its name in want
		opts []quorumlock.Option
		want string // of the error; "" if there is none
	}{
		{name: "all in the environment", env: "QUORUMLOCK_NODES=redis://a,redis://b,redis://c QUORUMLOCK_QUORUM=3 QUORUMLOCK_PREFIX=x: QUORUMLOCK_TTL=5s QUORUMLOCK_RESTART_GUARD=6s QUORUMLOCK_NODE_TIMEOUT=1s"},
		{name: "all in a file", file: "# ours\n\n" + nodes + " QUORUMLOCK_QUORUM = 3\nQUORUMLOCK_PREFIX=x:\nQUORUMLOCK_TTL=5s\nQUORUMLOCK_RESTART_GUARD=6s\nQUORUMLOCK_NODE_TIMEOUT=1s\n"},
		{name: "the same in both, and in the code", env: "QUORUMLOCK_QUORUM=3", file: nodes + "QUORUMLOCK_QUORUM=3\n", opts: []quorumlock.Option{quorumlock.WithQuorum(3)}},
		{name: "what the variables leave out", file: nodes, opts: []quorumlock.Option{quorumlock.WithQuorum(3), quorumlock.WithPrefix("x:")}},
		{name: "a quorum in both", env: "QUORUMLOCK_QUORUM=2", file: nodes + "QUORUMLOCK_QUORUM=3\n", want: "QUORUMLOCK_FILE: FILE: line 2: QUORUMLOCK_QUORUM is 3, and 2 in the environment: remove one of them"},
		{name: "nodes in both", env: "QUORUMLOCK_NODES=redis://me:s3cret@a", file: nodes, want: "line 1: QUORUMLOCK_NODES differs from the one in the environment"},
		{name: "nodes in two files", env: "QUORUMLOCK_NODES_FILE=/nowhere", file: nodes, want: "QUORUMLOCK_NODES (line 1 of FILE) and QUORUMLOCK_NODES_FILE both name nodes"},
		{name: "another quorum in the code", file: nodes + "QUORUMLOCK_QUORUM=2\n", opts: []quorumlock.Option{quorumlock.WithQuorum(3)},
			want: "QUORUMLOCK_QUORUM (line 2 of FILE) is 2, and the code has WithQuorum(3): remove one of them"},
		{name: "another prefix in the code", env: "QUORUMLOCK_PREFIX=x:", file: nodes, opts: []quorumlock.Option{quorumlock.WithPrefix("")}, want: "QUORUMLOCK_PREFIX is x:, and the code has WithPrefix()"},
		{name: "another TTL in the code", env: "QUORUMLOCK_TTL=5s", file: nodes, opts: []quorumlock.Option{quorumlock.WithTTL(time.Second)}, want: "QUORUMLOCK_TTL is 5s, and the code has WithTTL(1s)"},
		{name: "another guard in the code", env: "QUORUMLOCK_RESTART_GUARD=20s", file: nodes, opts: []quorumlock.Option{quorumlock.WithRestartGuard(time.Minute)}, want: "is 20s, and the code has WithRestartGuard(1m0s)"},
		{name: "a TTL beyond the guard", env: "QUORUMLOCK_RESTART_GUARD=5s", file: nodes, want: "WithTTL(10s) is longer than WithRestartGuard(5s)"},
		{name: "a word for a quorum", env: "QUORUMLOCK_QUORUM=most", file: nodes, want: `QUORUMLOCK_QUORUM: "most" is no number of nodes: use how many must agree`},
		{name: "a quorum of none", env: "QUORUMLOCK_QUORUM=0", file: nodes, want: `QUORUMLOCK_QUORUM: "0" is no number of nodes`},
		{name: "a quorum of too few", env: "QUORUMLOCK_QUORUM=1", file: nodes, want: "WithQuorum(1) cannot work over 3 nodes"},
		{name: "a TTL without a unit", file: nodes + "QUORUMLOCK_TTL=10\n", want: `QUORUMLOCK_TTL (line 2 of FILE): "10" is no positive duration: use one such as 30s`},
		{name: "an unknown name", file: nodes + "QUORUMLOCK_QUORM=2\n", want: "line 2: QUORUMLOCK_QUORM cannot be set in a file: use one of QUORUMLOCK_NODES, QUORUMLOCK_QUORUM,"},
		{name: "the variable of a command", file: nodes + "QUORUMLOCK_TOKEN=2\n", want: "line 2: QUORUMLOCK_TOKEN cannot be set in a file"},
		{name: "a file of URLs", file: "redis://me:s3cret@a?db=1\n", want: "line 1 is not of the form NAME=value"},
		{name: "a name twice", file: nodes + nodes, want: "line 2: QUORUMLOCK_NODES is set twice: remove one of the lines"},
		{name: "no value", file: nodes + "QUORUMLOCK_QUORUM=\n", want: "line 2: QUORUMLOCK_QUORUM has no value: give it one, or leave the line out"},
		{name: "quotes", file: "QUORUMLOCK_NODES=\"redis://me:s3cret@a\"\n", want: "line 1: QUORUMLOCK_NODES has quotes: write the value without them"},
		{name: "half a line", file: nodes + "QUORUMLOCK_TTL=1", want: "QUORUMLOCK_FILE: FILE: it does not end with a newline, as if half written: end its last line"},
		{name: "an empty file", file: "\n", want: "QUORUMLOCK_FILE: FILE: it is empty: write NAME=value lines"},
		{name: "no file", env: "QUORUMLOCK_FILE=/nowhere", want: "QUORUMLOCK_FILE: open /nowhere: "},
		{name: "no nodes", file: "QUORUMLOCK_QUORUM=2\n", want: "no nodes: set QUORUMLOCK_NODES"},
		{name: "no authorities", env: "QUORUMLOCK_TLS_CA=/nowhere", file: nodes, want: "QUORUMLOCK_TLS_CA: open /nowhere: "},
		{name: "no certificate", env: "QUORUMLOCK_TLS_CA=" + pem, file: nodes, want: "QUORUMLOCK_TLS_CA: " + pem + " has no certificate in PEM"},
		{name: "authorities in the code", env: "QUORUMLOCK_TLS_CA=" + pem, file: nodes, opts: []quorumlock.Option{redlock.WithNodeOptions(node.WithTLSConfig(&tls.Config{MinVersion: tls.VersionTLS12}))},
			want: "QUORUMLOCK_TLS_CA is " + pem + ", and the code has node.WithTLSConfig or node.WithDialer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, name := range []string{options.NodesVariable, options.NodesFileVariable} {
				t.Setenv(name, "")
			}
			file := filepath.Join(t.TempDir(), "settings")
			if tt.file != "" {
				testkit.Must(t, os.WriteFile(file, []byte(tt.file), 0o600), "WriteFile")
				t.Setenv(options.FileVariable, file)
			}
			for set := range strings.FieldsSeq(tt.env) {
				name, value, _ := strings.Cut(set, "=")
				t.Setenv(name, value)
			}
			c, err := redlock.DialEnv(tt.opts...)
			want := strings.ReplaceAll(tt.want, "FILE: FILE", "FILE: "+file)
			want = strings.ReplaceAll(want, "of FILE", "of "+file)
			switch {
			case err == nil && tt.want == "":
				_ = c.Close()
			case err == nil:
				_ = c.Close()
				t.Errorf("accepted, want %q", want)
			case tt.want == "" || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "\n"):
				t.Errorf("%q, want %q in one line, and no password", err, want)
			case errors.Is(err, os.ErrNotExist) == errors.Is(err, quorumlock.ErrMisuse):
				t.Errorf("%v: is ErrMisuse %v", err, errors.Is(err, quorumlock.ErrMisuse))
			}
		})
	}
}

// What the environment sets counts for locks: prefix, TTL and quorum.
func TestSettingsOfTheEnvironmentReachTheLocks(t *testing.T) {
	inTown(t, func(t *testing.T, file string) {
		w := build(t, "a", "b", "c")
		write(t, file, "QUORUMLOCK_PREFIX=x:\nQUORUMLOCK_TTL=1m\nQUORUMLOCK_QUORUM=3\n", "a", "b", "c")
		c, _ := w.client(t, file)
		lease := testkit.Lock(t, c.Mutex("y"))
		if left := time.Until(lease.ValidUntil()); left < 50*time.Second || !w["a"].Redis.Exists("x:y") {
			t.Errorf("valid for %v, keys %q", left, testkit.Keys(w["a"]))
		}
		testkit.Unlock(t, lease)
		w["c"].Kill()
		_, err := c.Mutex("y").TryLock(t.Context())
		if _, ok := errors.AsType[*quorumlock.QuorumError](err); !ok {
			t.Errorf("%v, want a QuorumError", err)
		}
	})
}

// over is a client over paths to the servers, under names of its own if there is a suffix.
func over(t *testing.T, servers []*embedded.Server, suffix string, opts ...quorumlock.Option) *redlock.Client {
	t.Helper()
	var nodes []*node.Node
	for _, s := range servers {
		p := s.Path(s.Name + suffix)
		t.Cleanup(p.Close)
		n, err := p.Node()
		testkit.Must(t, err, "Node")
		nodes = append(nodes, n)
	}
	c := testkit.Of(t, nodes, opts...)
	testkit.Warm(t, c)
	synctest.Wait()
	return c
}

// Two clients with different lists may not exclude each other: Diagnose sees that from either side.
func TestCheckSeesClientsWithAnotherListOfNodes(t *testing.T) {
	other := func(says string) []redlock.Finding {
		return []redlock.Finding{{Kind: redlock.FindingOtherList, Severity: redlock.SeverityWarning, Problem: says}}
	}
	for name, tt := range map[string]struct {
		theirs func(t *testing.T, all []*embedded.Server)
		want   []redlock.Finding
	}{
		"nobody else":      {func(*testing.T, []*embedded.Server) {}, nil},
		"the same":         {func(t *testing.T, all []*embedded.Server) { over(t, all[:3], "") }, nil},
		"in another order": {func(t *testing.T, all []*embedded.Server) { over(t, []*embedded.Server{all[2], all[0], all[1]}, "") }, nil},
		"by other names":   {func(t *testing.T, all []*embedded.Server) { over(t, all[:3], ".example") }, nil},
		"one replaced": {func(t *testing.T, all []*embedded.Server) { over(t, all[1:4], "") },
			other("3 nodes with a quorum of 2, instead of 3 with a quorum of 2; clients that have it: 1,")},
		"more nodes": {func(t *testing.T, all []*embedded.Server) { over(t, all, ""); over(t, all, "") },
			other("5 nodes with a quorum of 3, instead of 3 with a quorum of 2; clients that have it: 2,")},
		"another quorum": {func(t *testing.T, all []*embedded.Server) { over(t, all[:3], "", quorumlock.WithQuorum(3)) },
			other("3 nodes with a quorum of 3, instead of 3 with a quorum of 2; clients that have it: 1,")},
		"a guard": {func(t *testing.T, all []*embedded.Server) { over(t, all[:3], "", guarded) },
			other("another restart guard is in use: 10s, instead of none; clients that have it: 1,")},
		"another database": {func(t *testing.T, all []*embedded.Server) { over(t, all[:3], "/1") },
			other("another database is in use: number 1, instead of 0; clients that have it: 1,")},
		"another database of one node": {func(t *testing.T, all []*embedded.Server) {
			over(t, []*embedded.Server{all[0], all[1].Path("node-2/3"), all[2]}, "")
		}, other("number 3, instead of 0; clients that have it: 1,")},
		"one that is no longer there": {func(t *testing.T, all []*embedded.Server) { _ = over(t, all, "").Close() }, nil},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			all, _ := testkit.Nodes(t, 5)
			mine := over(t, all[:3], "", quorumlock.WithLabel("mine"))
			tt.theirs(t, all)
			synctest.Wait()
			want := tt.want
			finds(t, check(t, mine, true), want...)
		})
	}
}

// Services under prefixes of their own share no locks, so they may have other lists on purpose.
func TestAnotherListUnderAnotherPrefixIsOnlyAdvice(t *testing.T) {
	for name, tt := range map[string]struct {
		mine, theirs string
		want         redlock.Severity
	}{
		"two prefixes": {"a:", "b:", redlock.SeverityAdvice},
		"the same":     {"a:", "a:", redlock.SeverityWarning},
		"only mine":    {"a:", "", redlock.SeverityWarning},
		"only theirs":  {"", "b:", redlock.SeverityWarning},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			all, _ := testkit.Nodes(t, 5)
			mine := over(t, all[:3], "", quorumlock.WithPrefix(tt.mine))
			over(t, all, "", quorumlock.WithPrefix(tt.theirs))
			synctest.Wait()
			finds(t, check(t, mine, true), redlock.Finding{Kind: redlock.FindingOtherList, Severity: tt.want, Problem: "5 nodes with a quorum of 3"})
		})
	}
}

// A user who may not name connections can still lock. For one who may not list them, the report
// notes that this was not checked.
func TestListsOfNodesNeedNoPermissionToLock(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		all, _ := testkit.Nodes(t, 3)
		testkit.Each(all, func(s *embedded.Server) { s.Deny("client") })
		c := over(t, all, "")
		finds(t, check(t, c, true),
			redlock.Finding{Kind: redlock.FindingUntold, Severity: redlock.SeverityAdvice, Node: "node-1", Problem: "NOPERM"},
			redlock.Finding{Kind: redlock.FindingUntold, Severity: redlock.SeverityAdvice, Node: "node-2", Problem: "NOPERM"},
			redlock.Finding{Kind: redlock.FindingUntold, Severity: redlock.SeverityAdvice, Node: "node-3", Problem: "NOPERM"})
	})
}
