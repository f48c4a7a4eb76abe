package redlock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/quorumlock/quorumlock/internal/locktest"
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
	c, err := redlock.Dial(urls...)
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
		want string
	}{
		{"no URLs", nil, "quorumlock: redlock.Dial: no URLs: give at least one, and three or five"},
		{"an empty one", []string{eager, ""}, "quorumlock: redlock.Dial: URL 2 of 2: quorumlock: node.Dial: the URL is empty"},
		{"one without a scheme", []string{eager, "h:6379", eager}, "URL 2 of 3: quorumlock: node.Dial: the URL has no scheme: use redis://h:6379"},
		{"one with a bad port", []string{eager, "redis://user:s3cret@h:port"}, "URL 2 of 2"},
		{"one twice", []string{eager, eager}, "node 2, " + s.Addr() + ", is given twice"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := redlock.Dial(tt.urls...)
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
