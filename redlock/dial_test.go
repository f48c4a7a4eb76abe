package redlock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/options"
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
	if err != nil {
		t.Fatal(err)
	}
	servers[2].Close() // a quorum is left
	lease := locktest.Lock(t, c.Mutex("x"))
	if _, err := c.Mutex("x").TryLock(t.Context()); err == nil {
		t.Error("it was locked twice")
	}
	locktest.Unlock(t, lease)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
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
			if n := s.CurrentConnectionCount(); n > 0 {
				t.Errorf("%d connections are left open", n)
			}
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
		redlock.WithNodeOptions(node.WithCredentials(func(context.Context) (string, string, error) {
			asked.Add(1)
			return "locker", "s3cret", nil
		})))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close() //nolint:errcheck // the test is over
	lock := c.Lockers("jobs:", quorumlock.WithNodeTimeout(20*time.Second))("report")
	lease := locktest.Lock(t, lock)
	if lease.Name() != "jobs:report" || lease.Owner().Label() != "billing" || time.Until(lease.ValidUntil()) < 50*time.Second || asked.Load() == 0 {
		t.Errorf("%v; the credentials were asked for %d times", lease, asked.Load())
	}
	locktest.Unlock(t, lease)
	// It inherits the client's options.
	both, err := multilock.New([]quorumlock.Locker{c.Mutex("a"), c.Mutex("b")})
	if err != nil {
		t.Fatal(err)
	}
	locktest.Unlock(t, locktest.Lock(t, both))
}

// An option of nodes means nothing once there are nodes.
func TestNodeOptionsAreRefusedElsewhere(t *testing.T) {
	n, err := node.Dial("redis://10.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	c, err := redlock.New([]*node.Node{n})
	if err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(file, []byte("# ours\nredis://a\n\n redis://b \nredis://c/1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("redis://a\nuser:s3cret@b"), 0o600); err != nil {
		t.Fatal(err)
	}
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
