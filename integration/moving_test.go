package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// A move moves a slot between servers of a cluster. It calls during while the slot is on its way, if
// that can be seen from outside.
type move func(t *testing.T, slot int64, from, to *server, others []*server, during func())

// movesOf returns the ways in which the servers move slots.
func movesOf(t *testing.T, s *server) map[string]move {
	t.Helper()
	moves := map[string]move{"SETSLOT": setSlot}
	for command, m := range map[string]move{"migrateslots": migrateSlots, "migration": importSlots} { // Valkey 9, Redis 8.4
		known, err := s.admin.Do(t.Context(), "command", "info", "cluster|"+command).Slice()
		must(t, err)
		if len(known) > 0 && known[0] != nil {
			moves[strings.ToUpper(command)] = m
		}
	}
	return moves
}

// setSlot moves the keys one by one, with a pause before and behind each.
func setSlot(t *testing.T, slot int64, from, to *server, others []*server, during func()) {
	t.Helper()
	const pause = 50 * time.Millisecond
	set := func(s *server, to ...any) {
		must(t, s.admin.Do(t.Context(), append([]any{"cluster", "setslot", slot}, to...)...).Err())
	}
	set(to, "importing", idOf(t, from))
	set(from, "migrating", idOf(t, to))
	during()
	for {
		time.Sleep(pause)
		keys, err := from.admin.ClusterGetKeysInSlot(t.Context(), int(slot), 1).Result()
		must(t, err)
		if len(keys) == 0 {
			break
		}
		must(t, from.admin.Do(t.Context(), "migrate", to.ip(t), "6379", keys[0], 0, 5000).Err())
	}
	for _, s := range append([]*server{to, from}, others...) {
		set(s, "node", idOf(t, to))
	}
}

func migrateSlots(t *testing.T, slot int64, from, to *server, _ []*server, _ func()) {
	t.Helper()
	must(t, from.admin.Do(t.Context(), "cluster", "migrateslots", "slotsrange", slot, slot, "node", idOf(t, to)).Err())
	hasSlot(t, to, slot)
}

func importSlots(t *testing.T, slot int64, _, to *server, _ []*server, _ func()) {
	t.Helper()
	must(t, to.admin.Do(t.Context(), "cluster", "migration", "import", slot, slot).Err())
	hasSlot(t, to, slot)
}

func idOf(t *testing.T, s *server) string {
	t.Helper()
	id, err := s.admin.Do(t.Context(), "cluster", "myid").Text()
	must(t, err)
	return id
}

func hasSlot(t *testing.T, s *server, slot int64) {
	t.Helper()
	id := idOf(t, s)
	eventually(t, patience, s.addr+" has the slot", func() bool {
		shards, err := s.admin.ClusterShards(t.Context()).Result()
		must(t, err)
		for _, shard := range shards {
			for _, r := range shard.Slots {
				if r.Start <= slot && slot <= r.End {
					return slices.ContainsFunc(shard.Nodes, func(n redis.Node) bool { return n.ID == id })
				}
			}
		}
		return false
	})
}

// While a slot moves, a script with several keys is refused: some of the lock's keys are at one
// server, and some at the other.
func TestLocksOfASlotThatMovesAreGrantedRenewedAndReleased(t *testing.T) {
	needSince(t, 7, 0, "ranges of slots")
	client, servers := cluster(t)
	t.Cleanup(func() { must(t, client.Close()) })
	for name, move := range movesOf(t, servers[0]) {
		t.Run(name, func(t *testing.T) {
			n, err := node.New(client)
			must(t, err)
			t.Cleanup(func() { must(t, n.Close()) })
			c, err := redlock.New([]*node.Node{n}, quorumlock.WithTTL(6*time.Second), unhurried)
			must(t, err)
			t.Cleanup(func() { must(t, c.Close()) })
			tag := "{" + name + "}"
			slot, err := client.ClusterKeySlot(t.Context(), tag).Result()
			must(t, err)
			held := lock(t, c, tag+"held") // renewed throughout

			var over atomic.Bool
			var holders, grants, last atomic.Int64
			entered := func(lease *quorumlock.Lease) error {
				if holders.Add(1) != 1 {
					return errors.New("two holders")
				}
				if token := int64(lease.Token()); last.Swap(token) >= token {
					return fmt.Errorf("token %d is out of order", token)
				}
				grants.Add(1)
				err := lease.Extend(t.Context())
				holders.Add(-1)
				return errors.Join(err, lease.Unlock(t.Context()))
			}
			var callers errgroup.Group
			for range 3 {
				callers.Go(func() error {
					for !over.Load() {
						lease, err := c.Mutex(tag + "contended").Lock(t.Context())
						if err == nil {
							err = entered(lease)
						}
						if err != nil {
							return err
						}
					}
					return nil
				})
			}
			callers.Go(func() error {
				for !over.Load() {
					lease, err := c.Mutex(tag + "free").TryLock(t.Context())
					if err == nil {
						err = lease.Unlock(t.Context())
					}
					if err != nil {
						return fmt.Errorf("alone: %w", err)
					}
				}
				return nil
			})
			at := int(slot) * len(servers) / 16384
			for range 4 {
				to := (at + 1) % len(servers)
				move(t, slot, servers[at], servers[to], servers[3-at-to:][:1], func() {
					if r, err := c.Diagnose(t.Context()); err != nil || !strings.Contains(r.String(), "moves 1 of its slots") {
						t.Errorf("the report does not tell of the move: %v\n%v", err, r)
					}
				})
				at = to
				before := grants.Load()
				eventually(t, patience, "the callers go on", func() bool { return grants.Load() >= before+10 })
			}
			over.Store(true)
			must(t, callers.Wait())
			must(t, held.Extend(t.Context()))
			must(t, held.Unlock(t.Context()))
			noLocks(t, servers, patience)
			t.Logf("%d grants, their holders one at a time, the tokens in order", grants.Load())
		})
	}
}
