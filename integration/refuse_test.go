package integration

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"
	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// ways are those in which a server that is up and answers refuses to serve.
var ways = []struct {
	name  string
	says  string // how its error begins
	spoil func(ctx context.Context, s *redis.Client) error
	heal  func(ctx context.Context, s *redis.Client) error
}{
	{"a replica", "READONLY",
		// A master that is not there: the data stays, and may not be written.
		func(ctx context.Context, s *redis.Client) error { return s.ReplicaOf(ctx, "127.0.0.1", "1").Err() },
		func(ctx context.Context, s *redis.Client) error { return s.ReplicaOf(ctx, "NO", "ONE").Err() },
	},
	{"out of memory", "OOM",
		func(ctx context.Context, s *redis.Client) error { return s.ConfigSet(ctx, "maxmemory", "1").Err() },
		func(ctx context.Context, s *redis.Client) error { return s.ConfigSet(ctx, "maxmemory", "0").Err() },
	},
	{"no permission for scripts", "NOPERM",
		func(ctx context.Context, s *redis.Client) error { return acl(ctx, s, "-@scripting") },
		func(ctx context.Context, s *redis.Client) error { return acl(ctx, s, "+@scripting") },
	},
	{"no permission for the key", "NOPERM",
		func(ctx context.Context, s *redis.Client) error { return acl(ctx, s, "resetkeys", "~other") },
		func(ctx context.Context, s *redis.Client) error { return acl(ctx, s, "allkeys") },
	},
	{"a key of another type", "WRONGTYPE",
		func(ctx context.Context, s *redis.Client) error { return s.Set(ctx, faulty, "somebody's", 0).Err() },
		func(ctx context.Context, s *redis.Client) error {
			if v, err := s.Get(ctx, faulty).Result(); err != nil || v != "somebody's" {
				return errors.Join(err, errors.New("what was at the key is now "+v))
			}
			return s.Del(ctx, faulty).Err()
		},
	},
	{"a token that is no number", "the fencing token is not a number",
		func(ctx context.Context, s *redis.Client) error {
			return s.Set(ctx, "redisson_lock_token:{"+faulty+"}", "x", 0).Err()
		},
		func(ctx context.Context, s *redis.Client) error {
			return s.Del(ctx, "redisson_lock_token:{"+faulty+"}").Err()
		},
	},
}

// faulty is the name of the lock that the servers refuse.
const faulty = "faulty"

func acl(ctx context.Context, s *redis.Client, rules ...string) error {
	args := []any{"acl", "setuser", "default"}
	for _, r := range rules {
		args = append(args, r)
	}
	return s.Do(ctx, args...).Err()
}

func TestMinorityThatRefusesIsNotMissedAndAMajorityIsNamed(t *testing.T) {
	needServers(t)
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			if way.says == "NOPERM" {
				needUsers(t)
			}
			c, d := dial(t, five, unhurried), dial(t, five, unhurried)
			broken := 0
			fail := func(upTo int) {
				for ; broken < upTo; broken++ {
					s := five[broken]
					must(t, way.spoil(t.Context(), s.admin))
					t.Cleanup(func() { must(t, way.heal(context.Background(), s.admin)) })
				}
			}
			fail(2)
			lease := lock(t, c, faulty)
			isHeld(t, c, faulty)
			must(t, lease.Extend(t.Context()))
			must(t, lease.Unlock(t.Context()))

			fail(3)
			// By another client: a call of the first could share a bundle with its release. After
			// the first write of a bundle, Redis refuses no call for lack of memory.
			if way.says == "WRONGTYPE" { // the name belongs to another kind
				if _, err := d.Mutex(faulty).TryLock(t.Context()); !errors.Is(err, quorumlock.ErrWrongKind) || !strings.Contains(err.Error(), way.says) {
					t.Errorf("%v, want ErrWrongKind and %s", err, way.says)
				}
				return
			}
			e := noQuorum(t, d, faulty, five[:3])
			for _, n := range e.Nodes {
				if !strings.Contains(n.Error(), way.says) {
					t.Errorf("%v, want it to say %s", n, way.says)
				}
			}
		})
	}
}

// Neither a renewal nor a release needs memory.
func TestLockIsReleasedAtNodesThatRanOutOfMemory(t *testing.T) {
	needServers(t)
	c := dial(t, five, unhurried)
	lease := lock(t, c, "full", quorumlock.WithTTL(time.Hour))
	everyNodeHas(t, "full", lease)
	for _, s := range five {
		must(t, s.admin.ConfigSet(t.Context(), "maxmemory", "1").Err())
		t.Cleanup(func() { must(t, s.admin.ConfigSet(context.Background(), "maxmemory", "0").Err()) })
	}
	must(t, lease.Extend(t.Context()))
	must(t, lease.Unlock(t.Context()))
	noLocks(t, five, patience)
}

func TestWrongPasswordIsToldAndNeverShown(t *testing.T) {
	needServers(t)
	for _, s := range five[:3] {
		must(t, s.admin.ConfigSet(t.Context(), "requirepass", "right").Err())
		t.Cleanup(func() { must(t, s.admin.ConfigSet(context.Background(), "requirepass", "").Err()) })
	}
	wrong, nobody := "wrongpass", "wrongpass"
	if !since(6, 0) { // there are no users
		wrong, nobody = "invalid password", "wrong number of arguments"
	}
	for _, c := range []struct{ user, says string }{
		{"", "wants a password"}, {":hunter2@", wrong}, {"nobody:hunter2@", nobody},
	} {
		t.Run(c.user+c.says, func(t *testing.T) {
			urls := make([]string, len(five))
			for i, s := range five {
				urls[i] = strings.Replace(s.url(), "//", "//"+c.user, 1)
				if i >= 3 {
					urls[i] = s.url() // they have no password, and want none
				}
			}
			e := noQuorum(t, dialURLs(t, urls, unhurried), "secret", five[:3])
			if !strings.Contains(strings.ToLower(e.Error()), c.says) {
				t.Errorf("%v, want %s", e, c.says)
			}
			if strings.Contains(e.Error(), "hunter2") {
				t.Errorf("the error shows the password: %v", e)
			}
		})
	}
}

func TestLoadingNodeIsToldAndServesAfterwards(t *testing.T) {
	needServers(t)
	const interval = "loading-process-events-interval-bytes"
	known, err := five[0].admin.ConfigGet(t.Context(), interval).Result()
	must(t, err)
	if len(known) == 0 {
		t.Skipf("the servers have no %s, so only much data makes them say that they load", interval)
	}
	t.Parallel() // on servers of its own
	// It takes a fifth of a second for every key that it loads.
	s := start(t, &redis.Options{}, []string{"--key-load-delay", "200000", "--" + interval, "1024"})
	ballast := make([]byte, 2048) // that cannot be compressed: after each it looks for requests
	for i := range 300 {
		_, _ = rand.Read(ballast)
		must(t, s.admin.Set(t.Context(), fmt.Sprint("ballast ", i), ballast, 0).Err())
	}
	must(t, s.admin.Save(t.Context()).Err())
	_, err = docker.ContainerRestart(t.Context(), s.id, client.ContainerRestartOptions{Timeout: new(int)})
	must(t, err)
	eventually(t, patience, "the node says that it is loading", func() bool {
		return redis.HasErrorPrefix(s.admin.Ping(t.Context()).Err(), "LOADING")
	})

	n, err := node.Dial(s.url())
	must(t, err)
	t.Cleanup(func() { must(t, n.Close()) })
	m := n.Mutex("loading", unhurried)
	if _, err := m.TryLock(t.Context()); err == nil || !strings.Contains(err.Error(), "LOADING") {
		t.Errorf("TryLock at a node that is loading: %v", err)
	}
	// Before Redis 7, and on KeyDB, CONFIG is refused, too, until all is loaded.
	if err := s.admin.ConfigSet(t.Context(), "key-load-delay", "0").Err(); err != nil && !redis.HasErrorPrefix(err, "LOADING") {
		t.Fatal(err)
	}
	lease, err := m.Lock(t.Context())
	must(t, err)
	must(t, lease.Unlock(t.Context()))
}

// Each version has its own error texts for a command that the user may not use or that the server
// lacks, and others within scripts.
func TestRefusedCommandsAreToldWithTheirFix(t *testing.T) {
	needUsers(t)
	// fixed checks that a report of the server, as the only node, has that fix for a refusal.
	fixed := func(t *testing.T, s *server, fix string) {
		t.Helper()
		c := dialURLs(t, []string{s.url()}, unhurried)
		r, _ := c.Diagnose(t.Context())
		for _, f := range r.Findings {
			if f.Kind == redlock.FindingRefuses && strings.Contains(f.Fix, fix) {
				return
			}
		}
		t.Errorf("want the fix %s:\n%v", fix, r)
	}
	s := start(t, &redis.Options{}, nil)
	for _, command := range []string{"evalsha", "exists", "hset", "pexpire", "time", "zadd"} {
		t.Run(command+" denied", func(t *testing.T) {
			must(t, acl(t.Context(), s.admin, "-"+command))
			fixed(t, s, "docs/security.md")
			must(t, acl(t.Context(), s.admin, "+"+command))
		})
	}
	for _, command := range []string{"evalsha", "hset", "time"} {
		t.Run(command+" renamed", func(t *testing.T) {
			fixed(t, start(t, &redis.Options{}, []string{"--rename-command", command, "other"}), "rename-command")
		})
	}
	t.Run("the value of a leader", func(t *testing.T) {
		must(t, acl(t.Context(), s.admin, "-hexists"))
		c := dialURLs(t, []string{s.url()}, unhurried)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if _, err := election.New(c.Mutex("job"), "here").Campaign(ctx); err == nil || ctx.Err() != nil {
			t.Errorf("%v, want the server's refusal at once", err)
		}
	})
}
