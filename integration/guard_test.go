package integration

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/node"
)

// forgetful starts n servers that have nothing on disk.
func forgetful(t *testing.T, n int) []*server {
	t.Helper()
	servers := make([]*server, n)
	for i := range servers {
		servers[i] = start(t, &redis.Options{}, nil)
	}
	return servers
}

// single returns a node over a server of the test, closed with it.
func single(t *testing.T, url string) *node.Node {
	t.Helper()
	n, err := node.Dial(url)
	must(t, err)
	t.Cleanup(func() { must(t, n.Close()) })
	return n
}

func TestServersThatForgetAtARestartMakeTwoHoldersOnlyWithoutTheGuard(t *testing.T) {
	needServers(t)
	t.Parallel()                // on servers of its own
	const ttl = 8 * time.Second // to be waited for; without the guard there is nothing to wait for
	for name, opts := range map[string][]quorumlock.Option{
		"without": {quorumlock.WithTTL(5 * time.Minute), quorumlock.WithoutRenewal(), unhurried},
		"with":    {quorumlock.WithTTL(ttl), quorumlock.WithoutRenewal(), unhurried, quorumlock.WithRestartGuard(ttl)},
	} {
		t.Run(name, func(t *testing.T) {
			servers := forgetful(t, 3)
			c, other := dial(t, servers, opts...), dial(t, servers, opts...)
			every := append(opts[:len(opts):len(opts)], quorumlock.WithQuorum(3))
			// No server has just started.
			must(t, lock(t, dial(t, servers, every...), "any").Unlock(t.Context()))
			lease := lock(t, c, "held")
			for _, s := range servers[:2] {
				s.kill(t)
				s.restart(t)
			}
			if name == "with" {
				e := noQuorum(t, other, "held", servers[:2])
				if !errors.Is(e, quorumlock.ErrQuarantined) {
					t.Errorf("%v, want ErrQuarantined", e)
				}
			}
			next := lock(t, other, "held")
			both := lease.Context().Err() == nil && next.Context().Err() == nil
			if both != (name == "without") {
				t.Errorf("two holders: %v; one until %v, the other from %v on", both, lease.ValidUntil(), time.Now())
			}
			must(t, next.Unlock(t.Context()))
			_ = lease.Unlock(t.Context()) // two servers no longer have it
		})
	}
}

func TestGuardedNodeIsOutForItsTimeAndNeverForItsScripts(t *testing.T) {
	needServers(t)
	t.Parallel() // on servers of its own
	const maxTTL = 2 * time.Second
	s := forgetful(t, 1)[0]
	guarded := single(t, s.url()).Mutex("x", quorumlock.WithNodeTimeout(maxTTL), quorumlock.WithTTL(maxTTL), quorumlock.WithRestartGuard(maxTTL))
	plain := single(t, s.url()).Mutex("y", unhurried)
	again := func(what string) {
		t.Helper()
		lease, err := guarded.TryLock(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		must(t, lease.Unlock(t.Context()))
	}
	for range 2 {
		s.kill(t)
		killed := time.Now()
		s.restart(t)
		early, err := plain.Lock(t.Context()) // brings its scripts
		must(t, err)
		must(t, early.Unlock(t.Context()))
		lease, err := guarded.Lock(t.Context())
		must(t, err)
		if out := time.Since(killed); out < maxTTL {
			t.Errorf("granted %v after it was killed", out)
		}
		must(t, lease.Unlock(t.Context()))
		must(t, s.admin.ScriptFlush(t.Context()).Err())
		again("after SCRIPT FLUSH")
		must(t, s.admin.FlushAll(t.Context()).Err())
		again("after FLUSHALL")
	}
}

// A machine may boot with a wrong clock, which a time server then corrects. INFO's uptime moves with
// the clock.
func TestAStepOfAServersClockMovesNoQuarantine(t *testing.T) {
	needServers(t)
	for name, wrong := range map[string]time.Duration{"it boots an hour slow": -time.Hour, "it boots an hour fast": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // on servers of its own
			const maxTTL = 5 * time.Second
			m := &member{server: start(t, &redis.Options{}, nil, withClock(t))}
			guarded := single(t, m.url()).Mutex("x", quorumlock.WithNodeTimeout(maxTTL), quorumlock.WithTTL(maxTTL), quorumlock.WithRestartGuard(maxTTL))
			m.step(t, wrong)
			m.kill(t)
			killed := time.Now()
			m.restart(t)
			m.step(t, -wrong)
			lease, err := guarded.Lock(patiently(t))
			must(t, err)
			if out := time.Since(killed); out < maxTTL {
				t.Errorf("granted %v after it was killed", out)
			}
			must(t, lease.Unlock(t.Context()))
		})
	}
}

// A promoted replica has been up for long, but may lack grants of its master.
func TestPromotedReplicaIsOutFromTheFirstCallOn(t *testing.T) {
	needServers(t)
	t.Parallel() // on servers of its own
	const maxTTL = 3 * time.Second
	servers := forgetful(t, 2)
	master, replica := servers[0], servers[1]
	ip := master.ip(t)
	m := single(t, replica.url()).Mutex("x", quorumlock.WithNodeTimeout(maxTTL), quorumlock.WithTTL(maxTTL), quorumlock.WithRestartGuard(maxTTL))
	lease, err := m.Lock(t.Context()) // up for long enough
	must(t, err)
	must(t, lease.Unlock(t.Context()))
	for range 2 { // the second time it has been a master before, and knows the scripts
		must(t, replica.admin.ReplicaOf(t.Context(), ip, "6379").Err())
		eventually(t, patience, "the replica has its master's data", func() bool {
			info, err := replica.admin.Info(t.Context(), "replication").Result()
			must(t, err)
			return strings.Contains(info, "master_link_status:up")
		})
		if _, err := m.TryLock(t.Context()); err == nil || !strings.Contains(err.Error(), "READONLY") {
			t.Errorf("at a replica: %v, want READONLY", err)
		}
		must(t, replica.admin.ReplicaOf(t.Context(), "NO", "ONE").Err())
		promoted := time.Now()
		eventually(t, patience, "the client finds the promotion, and the guard", func() bool { // it pauses at a replica
			_, err := m.TryLock(t.Context())
			return errors.Is(err, quorumlock.ErrQuarantined)
		})
		lease, err := m.Lock(t.Context())
		must(t, err)
		if out := time.Since(promoted); out < maxTTL {
			t.Errorf("granted %v after the promotion", out)
		}
		must(t, lease.Unlock(t.Context()))
	}
}

func TestGuardNeedsInfoAndNoMoreThanThat(t *testing.T) {
	needUsers(t)
	t.Parallel() // on servers of its own
	const maxTTL = time.Second
	s := forgetful(t, 1)[0]
	allow(t, s, "guarded", append(permissions, "on", ">secret", "-info")...)
	m := single(t, strings.Replace(s.url(), "//", "//guarded:secret@", 1)).
		Mutex("x", quorumlock.WithNodeTimeout(maxTTL), quorumlock.WithTTL(maxTTL), quorumlock.WithRestartGuard(maxTTL))
	if _, err := m.TryLock(t.Context()); err == nil || !strings.Contains(err.Error(), "+info") {
		t.Errorf("without the permission: %v, want an error that names it", err)
	}
	allow(t, s, "guarded", "+info")
	lease, err := m.Lock(t.Context())
	must(t, err)
	must(t, lease.Unlock(t.Context()))
}
