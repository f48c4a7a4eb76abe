package multilock_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// Another caller holds one member, and the nodes of the other are down. The error matches both
// reasons.
func TestAHeldMemberDoesNotHideTheOutageOfAnother(t *testing.T) {
	for name, cut := range map[string]func(*embedded.Server){"killed": (*embedded.Server).Kill, "frozen": (*embedded.Server).Stall} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, near := locktest.Client(t, 3, quorumlock.WithWait(2*time.Second))
				d, far := locktest.Client(t, 3, quorumlock.WithWait(2*time.Second))
				other, _ := locktest.Another(t, near)
				locktest.Lock(t, other.Mutex("a"))
				m := all(t, c.Mutex("a"), d.Mutex("b"))
				locktest.Each(far[1:], cut)
				_, locked := m.Lock(t.Context())
				_, tried := m.TryLock(t.Context())
				for call, err := range map[string]error{"Lock": locked, "TryLock": tried} {
					known := call == "Lock" || name == "killed" // a TryLock does not wait for silent nodes once a member is held
					if !errors.Is(err, quorumlock.ErrHeld) || errors.Is(err, quorumlock.ErrNoQuorum) != known || strings.Contains(err.Error(), "\n") {
						t.Errorf("%s: %v, want ErrHeld in one line, and ErrNoQuorum: %v", call, err, known)
					}
				}
			})
		})
	}
}
