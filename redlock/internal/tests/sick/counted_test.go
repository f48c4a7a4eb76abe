package sick

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
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
			testkit.Run(t, fmt.Sprint(name, " at ", trip), func(t *testing.T) {
				c, servers := testkit.Client(t, 5)
				testkit.Each(servers, func(s *embedded.Server) { s.Delay(trip) })
				testkit.Warm(t, c)
				testkit.Each(servers[:3], (*embedded.Server).Kill)
				for range 3 {
					began := time.Now()
					_, err := call(c.Mutex("x"), testkit.Within(t, time.Second))
					q, _ := errors.AsType[*quorumlock.QuorumError](err)
					if q == nil || q.Granted != 2 || q.Needed != 3 || len(q.Nodes) != 3 || strings.Contains(err.Error(), "\n") {
						t.Errorf("%v", err)
					}
					if name == "TryLock" {
						testkit.Took(t, began, 0, 2*trip+25*time.Millisecond, "TryLock")
					}
				}
				time.Sleep(2 * time.Second)
				testkit.Equal(t, len(testkit.Keys(servers[4])), 0, "keys at a node that is alive")
				testkit.Restart(servers[:3]...)
			})
		}
	}
}
