package hold

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// The validity counts from before the first request, whether the grants or the raise of the token
// take long. A caller never gets an expired lease. The drift of a TTL of 1 s is 12 ms.
func TestAPauseWhileAcquiringCountsAgainstTheValidity(t *testing.T) {
	for _, script := range []string{"acquire", "raise"} {
		for pause, granted := range map[time.Duration]bool{0: true, 500 * time.Millisecond: true, 980 * time.Millisecond: true, 988 * time.Millisecond: false} {
			locktest.Run(t, script+" takes "+pause.String(), func(t *testing.T) {
				// With 1 ms left, a renewal is due at once, and would set another end.
				c, servers := locktest.Client(t, 5, quorumlock.WithTTL(time.Second), quorumlock.WithNodeTimeout(time.Second), quorumlock.WithoutRenewal())
				locktest.Warm(t, c)
				if script == "raise" {
					locktest.SetCounters(t, servers, "x", locktest.Ahead(3), locktest.Ahead(4), locktest.Ahead(5), locktest.Ahead(1), locktest.Ahead(2))
					// Otherwise three may agree without a raise.
					locktest.Each(servers[3:], func(s *embedded.Server) { s.Delay(time.Millisecond) })
				}
				locktest.Each(servers, func(s *embedded.Server) {
					s.After(func(r embedded.Run) {
						if r.Script == script {
							time.Sleep(pause)
						}
					})
				})
				start := time.Now()
				lease, err := c.Mutex("x").TryLock(t.Context())
				if (err == nil) != granted {
					t.Fatalf("granted: %v, want %v", err, granted)
				}
				if err == nil {
					if want := start.Add(988 * time.Millisecond); !lease.ValidUntil().Equal(want) {
						t.Errorf("valid until %v, want %v: what the nodes took must count", lease.ValidUntil(), want)
					}
					locktest.Unlock(t, lease)
				}
				locktest.Nothing(t, servers)
			})
		}
	}
}
