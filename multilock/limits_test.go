package multilock_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/multilock"
	"github.com/quorumlock/quorumlock/redlock"
)

// rows returns n locks with names of that many bytes in all.
func rows(c *redlock.Client, n, bytes int) []quorumlock.Locker {
	members := make([]quorumlock.Locker, n)
	for i := range members {
		size := bytes / n
		if i == 0 {
			size += bytes % n
		}
		members[i] = c.Mutex(fmt.Sprintf("%0*d", size, i))
	}
	return members
}

// The limits of New.
const (
	maxMembers   = 1000
	maxNameBytes = 64 << 10
)

func TestAMultiLockWithinTheLimitsWorks(t *testing.T) {
	testkit.Clean(t, 1, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		other, _ := testkit.Another(t, servers)
		members := rows(c, maxMembers, maxNameBytes)
		m := testkit.Multi(t, members...)
		lease := testkit.Lock(t, m)
		time.Sleep(quorumlock.DefaultTTL * 6 / 5)
		testkit.Held(t, lease)
		testkit.Unlock(t, lease)

		lease = testkit.Lock(t, other.Mutex(members[len(members)-1].Name()))
		waiter := testkit.Waiter(t, m)
		time.Sleep(2 * time.Second)
		testkit.Unlock(t, lease)
		testkit.Unlock(t, <-waiter)
	})
}

func TestAMultiLockBeyondALimitIsRefusedByName(t *testing.T) {
	c, _ := testkit.Client(t, 3)
	members, short := rows(c, 501, 5010), []quorumlock.Option{quorumlock.WithNodeTimeout(50 * time.Millisecond)}
	testkit.OK(t, testkit.Err(multilock.New(members[:500], short...)), "New")
	testkit.OK(t, testkit.Err(multilock.New(members, quorumlock.WithNodeTimeout(51*time.Millisecond))), "New")
	for name, tt := range map[string]struct {
		members []quorumlock.Locker
		opts    []quorumlock.Option
		want    string
	}{
		"members":         {rows(c, maxMembers+1, 10*(maxMembers+1)), nil, "1001 locks, those of members included: use at most 1000"},
		"nested members":  {[]quorumlock.Locker{testkit.Multi(t, rows(c, 999, 9990)...), testkit.Multi(t, c.Mutex("a"), c.Mutex("b"))}, nil, "1001 locks"},
		"bytes of names":  {rows(c, 100, maxNameBytes+1), nil, "the names of its 100 locks have 65537 bytes with their prefixes: use at most 65536"},
		"bytes of a name": {[]quorumlock.Locker{c.Mutex(strings.Repeat("x", 1<<20))}, nil, "has 1048576 bytes with its prefix: use at most 1024"},
		// A node cannot answer for any number of locks within a short node timeout.
		"locks for a timeout": {members, short, "use at most 500 locks, or a node timeout of 50.1ms or more"},
	} {
		_, err := multilock.New(tt.members, tt.opts...)
		if err == nil || !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 300 {
			t.Errorf("too many %s: %.300v, want an error about %q", name, err, tt.want)
		}
	}
}
