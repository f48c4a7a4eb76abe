package multilock_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
)

// What is wrong with a member, and how soon it is known.
var outages = []struct {
	name       string
	begin, end func(*embedded.Server)
}{
	{"killed", (*embedded.Server).Kill, func(s *embedded.Server) { s.Restart(true) }},
	{"frozen", (*embedded.Server).Stall, (*embedded.Server).Resume},
	{"requests lost", (*embedded.Server).Lose, (*embedded.Server).Resume},
}

// Unlock waits for every member, whatever becomes of the first. It says how many it has freed, and
// these are free.
func TestUnlockFreesEveryMemberThatCanBeReachedAndSaysHowMany(t *testing.T) {
	for _, tt := range outages {
		for down := range 3 {
			locktest.Run(t, fmt.Sprintf("node of member %d %s", down+1, tt.name), func(t *testing.T) {
				servers, nodes := locktest.Nodes(t, 3)
				names := []string{"a", "b", "c"}
				var members []quorumlock.Locker
				for i, n := range nodes {
					members = append(members, n.Mutex(names[i]))
				}
				lease := locktest.Lock(t, locktest.Multi(t, members...))
				for i, s := range servers {
					s.Delay(time.Duration(i+1) * 2 * time.Millisecond)
				}
				tt.begin(servers[down])
				err := lease.Unlock(t.Context())
				for i, s := range servers {
					if i != down && s.Redis.Exists(names[i]) {
						t.Errorf("Unlock returned, and member %q, whose node is healthy, is not free", names[i])
					}
				}
				saysTwoOfThree(t, err)
				tt.end(servers[down])
				time.Sleep(2 * quorumlock.DefaultTTL)
				locktest.Nothing(t, servers)
			})
		}
	}
}

// The same for members that are RedLocks with nodes of their own, of which one has lost its
// majority.
func TestUnlockFreesEveryRedLockThatHasAQuorumAndSaysHowMany(t *testing.T) {
	for _, tt := range outages {
		locktest.Run(t, tt.name, func(t *testing.T) {
			names := []string{"a", "b", "c"}
			var members []quorumlock.Locker
			var servers [][]*embedded.Server
			for i := range names {
				c, some := locktest.Client(t, 3)
				members, servers = append(members, c.Mutex(names[i])), append(servers, some)
			}
			lease := locktest.Lock(t, locktest.Multi(t, members...))
			for i := range servers {
				for j, s := range servers[i] {
					s.Delay(time.Duration(3*i+j+1) * time.Millisecond)
				}
			}
			locktest.Each(servers[0][:2], tt.begin)
			err := lease.Unlock(t.Context())
			for i := range servers[1:] {
				has := 0
				for _, s := range servers[1+i] {
					if s.Redis.Exists(names[1+i]) {
						has++
					}
				}
				if has > 1 {
					t.Errorf("Unlock returned, and member %q, whose nodes are healthy, is not free: %d of 3 have it", names[1+i], has)
				}
			}
			saysTwoOfThree(t, err)
			locktest.Each(servers[0][:2], tt.end)
			time.Sleep(2 * quorumlock.DefaultTTL)
			for i := range servers {
				locktest.Nothing(t, servers[i])
			}
		})
	}
}

// One member was lost before Unlock, and the others are freed by it all the same.
func TestUnlockOfALostMultiLockWaitsUntilTheOtherMembersAreFree(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		servers, nodes := locktest.Nodes(t, 3)
		names := []string{"a", "b", "c"}
		var members []quorumlock.Locker
		for i, n := range nodes {
			members = append(members, n.Mutex(names[i]))
		}
		lease := locktest.Lock(t, locktest.Multi(t, members...))
		for i, s := range servers {
			s.Delay(time.Duration(i+1) * 2 * time.Millisecond)
		}
		servers[0].Redis.Del("a")
		if err := lease.Unlock(t.Context()); !errors.Is(err, quorumlock.ErrLost) {
			t.Errorf("Unlock: %v, want ErrLost", err)
		}
		for i, s := range servers {
			if s.Redis.Exists(names[i]) {
				t.Errorf("Unlock returned, and member %q is not free", names[i])
			}
		}
		locktest.Nothing(t, servers)
	})
}

func saysTwoOfThree(t *testing.T, err error) {
	t.Helper()
	q, ok := errors.AsType[*quorumlock.QuorumError](err)
	if !ok {
		t.Errorf("Unlock: %v, want a QuorumError", err)
	} else if q.Granted != 2 || q.Needed != 3 {
		t.Errorf("Unlock says %d of %d, want 2 of 3: %v", q.Granted, q.Needed, err)
	}
}
