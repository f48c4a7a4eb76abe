package sick

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// The reply to a script is lost after it ran. At a minority this costs nothing; at more nodes the
// caller gets an error, and a grant without its knowledge is released. No script takes effect
// twice.
func TestAScriptWhoseReplyIsLostTakesEffectOnce(t *testing.T) {
	for _, script := range []string{"acquire", "raise", "renew", "release"} {
		for _, lost := range []int{2, 3, 5} {
			locktest.Run(t, fmt.Sprintf("%s at %d of 5", script, lost), func(t *testing.T) {
				c, servers := locktest.Client(t, 5)
				other, _ := locktest.Another(t, servers)
				if script == "raise" {
					locktest.SetCounters(t, servers, "x", locktest.Ahead(10), locktest.Ahead(20), locktest.Ahead(30), locktest.Ahead(40), locktest.Ahead(50))
				}
				var mu sync.Mutex
				raised := make(map[string]int) // by server and owner
				locktest.Each(servers, func(s *embedded.Server) {
					s.After(func(r embedded.Run) {
						mu.Lock()
						defer mu.Unlock()
						if r.Script == "raise" {
							raised[s.Name+" "+r.Args[0]]++
						}
					})
				})
				for _, s := range servers[:lost] {
					s.Before(func(r embedded.Run) {
						if r.Script == script {
							s.Before(nil)
							s.LoseReplies(1)
						}
					})
				}
				few := func(what string, err error) {
					t.Helper()
					q, ok := errors.AsType[*quorumlock.QuorumError](err)
					if ok != (lost > 2) || (err != nil) != ok || errors.Is(err, quorumlock.ErrHeld) || errors.Is(err, quorumlock.ErrLost) || ok && (q.Needed != 3 || len(q.Nodes) < 3) {
						t.Errorf("%s: %v, want a QuorumError of 3 nodes if a majority did not answer", what, err)
					}
				}
				// With lost raises, in its next attempt.
				lease, err := c.Mutex("x").TryLock(t.Context())
				if script == "acquire" {
					few("TryLock", err)
				} else if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if err == nil {
					if n := locktest.AtLeast(t, servers, "x", lease.Token()); n < 3 {
						t.Errorf("%d nodes count on from the token, want 3", n)
					}
					time.Sleep(2 * quorumlock.DefaultTTL)
					locktest.Held(t, lease)
					for i, s := range servers {
						if n := s.Redis.HGet("x", string(wire.OfCell(lease.Owner(), i))); n != "1" {
							t.Errorf("the hold count at %s is %q, want 1", s.Name, n)
						}
					}
					if err := lease.Unlock(t.Context()); script == "release" {
						few("Unlock", err)
					} else if err != nil {
						t.Error("Unlock:", err)
					}
				}
				synctest.Wait()
				if n := locktest.Ran(servers, script); n > 5 && script != "renew" && script != "raise" {
					t.Errorf("%s ran %d times at 5 nodes", script, n)
				}
				// A second attempt may raise once more, under its own owner.
				for of, n := range raised {
					if n > 1 {
						t.Errorf("raise ran %d times at a node for %s", n, of)
					}
				}
				locktest.NoLocks(t, servers)
				locktest.Unlock(t, locktest.TryLock(t, other.Mutex("x")))
				locktest.Nothing(t, servers)
			})
		}
	}
}
