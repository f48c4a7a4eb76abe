package scripts_test

import (
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// A user without the permission for PEXPIRE gets an error, and leaves no key that would stay for
// ever.
func TestWithoutPermissionToExpireNothingIsLeftForEver(t *testing.T) {
	hold := wire.Acquire("x", alice, ttl, 1, 100)
	waits := wire.AcquireInTurn("x", "bob:1.7", ttl, 100, reader("bob:1", 1, 1))
	restore := wire.Restore("x", alice, ttl, uint64(time.Now().UnixMicro()))
	release := wire.Release("x", alice, 1)
	for name, c := range map[string]struct {
		allowed []wire.Call
		denied  wire.Call
	}{
		"a hold":                    {nil, hold},
		"a hold of a known counter": {[]wire.Call{hold, release}, hold},
		"a second entry":            {[]wire.Call{hold}, wire.Acquire("x", alice, ttl, 2, 100)},
		"a waiter":                  {[]wire.Call{hold}, waits},
		"a handoff":                 {[]wire.Call{hold, waits}, release},
		"a share":                   {nil, hold.Shared()},
		"a waiting reader":          {[]wire.Call{hold}, waits.Shared()},
		"a handoff to a reader":     {[]wire.Call{hold, waits.Shared()}, release},
		"a slot":                    {nil, restore.At(7).OfSemaphore(2, 0)},
		"a slot of known tokens":    {[]wire.Call{restore.At(7).OfSemaphore(2, 0), release.At(7).OfSemaphore(2, 0)}, restore.At(7).OfSemaphore(2, 0)},
		"a waiter for a slot":       {[]wire.Call{restore.At(7).OfSemaphore(1, 0)}, waits.OfSemaphore(1, 0)},
		"a slot that is handed over": {[]wire.Call{restore.At(7).OfSemaphore(1, 0), waits.OfSemaphore(1, 0)},
			release.At(7).OfSemaphore(1, 0)},
		"a latch":            {nil, wire.Latch("x", 2, wire.MakeLatch, ttl, "s", "one")},
		"a latch that opens": {nil, wire.Latch("x", 1, wire.MakeLatch, ttl, "s", "one")},
		"a leader's value":   {[]wire.Call{hold}, wire.Proclaim("x", alice, ttl, 100, 1, "value")},
	} {
		t.Run(name, func(t *testing.T) {
			servers, nodes := testkit.Nodes(t, 1)
			s := &server{T: t, node: nodes[0], data: servers[0].Redis}
			for _, call := range c.allowed {
				s.do(call)
			}
			servers[0].Deny("pexpire")
			if err := s.send(c.denied).Err; err == nil {
				t.Error("no error")
			}
			for _, key := range slices.Sorted(slices.Values(servers[0].Redis.Keys())) {
				if servers[0].Redis.TTL(key) == 0 {
					t.Errorf("%q stays for ever", key)
				}
			}
		})
	}
}
