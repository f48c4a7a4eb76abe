package election_test

import (
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// A node that is behind causes no older value, and hides no outage.
func TestAnOutageIsToldWithoutAGuessThatIsOlderThanWhatWasTold(t *testing.T) {
	for what, change := range map[string]func(t *testing.T, c []*candidate, term *election.Term){
		"value": func(t *testing.T, _ []*candidate, term *election.Term) {
			if err := term.Proclaim(t.Context(), "1"); err != nil {
				t.Fatal(err)
			}
		},
		"term": func(t *testing.T, c []*candidate, term *election.Term) {
			resign(t, term)
			c[1].leads(t)
		},
	} {
		locktest.Run(t, what, func(t *testing.T) {
			c, servers := start(t, 3)
			term := c[0].leads(t)
			behind := servers[4]
			c[0].paths[4].Kill()
			change(t, c, term)
			o := c[2].watches(t)
			locktest.Each(c[2].paths[:4], (*embedded.Server).Kill)
			now := time.Now()
			behind.Redis.Publish(wire.LeaderKey("job"), "noise")
			time.Sleep(time.Second)
			o.saw(t, now, time.Second, "1", "?")
			if got := slices.Clone(o.leaders); got[1].Owner != "" {
				t.Errorf("told %v, older than %v", got[1], got[0])
			}
		})
	}
}
