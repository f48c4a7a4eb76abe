package testkit

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/redlock"
)

// Ahead returns a token above the clock's hint by an hour and n µs: the counters then decide.
func Ahead(n int) uint64 { return uint64(time.Now().Add(time.Hour).UnixMicro()) + uint64(n) }

// SetCounters sets the token counters of a lock, one for each server; 0 leaves none.
func SetCounters(t testing.TB, servers []*embedded.Server, name string, tokens ...uint64) {
	t.Helper()
	for i, s := range servers {
		if tokens[i] == 0 {
			s.Redis.Del(wire.TokenKey(name))
		} else if err := s.Redis.Set(wire.TokenKey(name), fmt.Sprint(tokens[i])); err != nil {
			t.Fatal(err)
		}
	}
}

// Counters returns the token counters of a lock at the servers, 0 for a missing one.
func Counters(t testing.TB, servers []*embedded.Server, name string) []uint64 {
	t.Helper()
	all := make([]uint64, len(servers))
	for i, s := range servers {
		if v, err := s.Redis.Get(wire.TokenKey(name)); err == nil {
			if all[i], err = strconv.ParseUint(v, 10, 64); err != nil {
				t.Fatal(err)
			}
		}
	}
	return all
}

// AtLeast returns the number of servers with a counter of at least token.
func AtLeast(t testing.TB, servers []*embedded.Server, name string, token uint64) (n int) {
	t.Helper()
	for _, c := range Counters(t, servers, name) {
		if c >= token {
			n++
		}
	}
	return n
}

// Skew puts the wall clock of the client of a lock ahead. The client must not have been used yet. A
// negative skew puts it behind the nodes' clocks.
func Skew(l quorumlock.Locker, ahead time.Duration) {
	client.ClientOf(l).Simulate(func() time.Time { return time.Now().Add(ahead) }, nil, func(d time.Duration) time.Duration { return d })
}

// Skewed is Another with a skewed wall clock: see Skew.
func Skewed(t testing.TB, servers []*embedded.Server, ahead time.Duration, opts ...quorumlock.Option) (*redlock.Client, []*embedded.Server) {
	t.Helper()
	c, paths := Another(t, servers, opts...)
	Skew(c.Mutex("any"), ahead)
	return c, paths
}

// Near checks that a token is within minutes of the nodes' clocks, which are the test's.
func Near(t testing.TB, what string, token uint64) {
	t.Helper()
	if off := time.Until(time.UnixMicro(int64(token))); off.Abs() > 3*time.Minute {
		t.Errorf("%s has token %d, which is %v from the nodes' clocks, want minutes", what, token, off)
	}
}

// Sane checks that the counters of a lock are near the nodes' clocks, and kept for minutes.
func Sane(t testing.TB, servers []*embedded.Server, name string) {
	t.Helper()
	for i, c := range Counters(t, servers, name) {
		Near(t, fmt.Sprintf("%s's counter of %q", servers[i].Name, name), c)
		if ttl := servers[i].Redis.TTL(wire.TokenKey(name)); ttl < 2*time.Minute || ttl > 5*time.Minute {
			t.Errorf("%s keeps the counter of %q for %v, want minutes", servers[i].Name, name, ttl)
		}
	}
}
