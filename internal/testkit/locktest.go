// Package testkit has helpers for the tests of several packages: embedded nodes that end with the
// test, shorthands, and checks for leaks.
package testkit

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/node"
)

// Main runs the tests of a package, and fails if goroutines of the library are left after them.
func Main(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		// Few objects live, many are allocated: the default would give the collector a fifth of the
		// time.
		debug.SetGCPercent(400)
	}
	redis.SetLogger(silent{}) // go-redis logs every failed dial, and the tests make many
	code := m.Run()
	if code == 0 && !within(2*time.Second, func() bool { return len(AllGoroutines()) == 0 }) {
		fmt.Fprintf(os.Stderr, "goroutines are left after the tests:\n%s\n", strings.Join(AllGoroutines(), "\n\n"))
		code = 1
	}
	os.Exit(code)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// Nodes starts n embedded servers and a node for each. The end of the test closes all of them,
// after any client that registers its Cleanup later. Outside a synctest bubble, the default timeout
// of a node is a minute, because a busy machine may exceed the usual one.
func Nodes(t testing.TB, n int, opts ...node.Option) ([]*embedded.Server, []*node.Node) {
	t.Helper()
	if !inBubble() {
		opts = append([]node.Option{node.WithTimeout(time.Minute)}, opts...)
	}
	servers, nodes, err := embedded.Nodes(n, opts...)
	if err != nil {
		t.Fatal(err)
	}
	closeAfter(t, servers, nodes)
	return servers, nodes
}

func closeAfter(t testing.TB, servers []*embedded.Server, nodes []*node.Node) {
	t.Cleanup(func() {
		for _, n := range nodes {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		}
		for _, s := range servers {
			s.Close()
		}
		settle()
	})
}

// settle lets go-redis's redial of a dead node end: it checks once a second whether its pool is
// closed. In a synctest bubble that takes no time.
func settle() {
	if inBubble() {
		time.Sleep(2 * time.Second)
	}
}

// inBubble reports whether the clock is that of a testing/synctest bubble, which starts in 2000.
func inBubble() bool { return time.Now().Year() < 2020 }
