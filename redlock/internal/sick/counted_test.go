package sick

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// Nodes that refuse connections fail at once, before the others can answer. The error counts the
// grants of these all the same.
func TestTheErrorOfNoQuorumCountsTheNodesThatAreAlive(t *testing.T) {
	for name, call := range map[string]func(*redlock.Mutex, context.Context) (*quorumlock.Lease, error){
		"TryLock": (*redlock.Mutex).TryLock,
		"Lock":    (*redlock.Mutex).Lock,
	} {
		for _, trip := range []time.Duration{0, time.Millisecond, 50 * time.Millisecond} {
			locktest.Run(t, fmt.Sprint(name, " at ", trip), func(t *testing.T) {
				c, servers := locktest.Client(t, 5)
				locktest.Each(servers, func(s *embedded.Server) { s.Delay(trip) })
				locktest.Warm(t, c)
				locktest.Each(servers[:3], (*embedded.Server).Kill)
				for range 3 {
					began := time.Now()
					_, err := call(c.Mutex("x"), locktest.Within(t, time.Second))
					q, _ := errors.AsType[*quorumlock.QuorumError](err)
					if q == nil || q.Granted != 2 || q.Needed != 3 || len(q.Nodes) != 3 || strings.Contains(err.Error(), "\n") {
						t.Errorf("%v", err)
					}
					if name == "TryLock" {
						locktest.Took(t, began, 0, 2*trip+25*time.Millisecond, "TryLock")
					}
				}
				time.Sleep(2 * time.Second)
				locktest.Equal(t, len(locktest.Keys(servers[4])), 0, "keys at a node that is alive")
				locktest.Restart(servers[:3]...)
			})
		}
	}
}
