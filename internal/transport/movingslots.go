package transport

import (
	"context"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// MovingSlots returns the number of slots that CLUSTER SETSLOT moves between the servers of the
// cluster; 0 for a single server. Moves of Valkey 9 and Redis 8.4, which are one step for clients,
// do not count.
func (n *Node) MovingSlots(ctx context.Context) (int, error) {
	cluster, ok := n.client.(*redis.ClusterClient)
	if !ok {
		return 0, nil
	}
	var mu sync.Mutex
	moving := make(map[string]bool)
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, server *redis.Client) error {
		said, err := server.ClusterNodes(ctx).Result()
		mu.Lock()
		defer mu.Unlock()
		for _, slot := range openSlots(said) {
			moving[slot] = true
		}
		return err
	})
	return len(moving), err
}

// openSlots returns the slots that move from or to a server, from its reply to CLUSTER NODES. The
// reply lists each as [slot->-server] or [slot-<-server].
func openSlots(nodes string) (slots []string) {
	for field := range strings.FieldsSeq(nodes) {
		if slot, _, ok := strings.Cut(strings.TrimPrefix(field, "["), "-"); ok && field[0] == '[' {
			slots = append(slots, slot)
		}
	}
	return slots
}
