package transport

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// shards is the state of shard channels, which a cluster has since Redis 7. A shard channel has a
// slot, as a key has, and its messages stay at the server of that slot. Other messages go to every
// server of the cluster. Redisson uses shard channels in a cluster, and so does this library. The
// zero value is for a single server, and for a cluster not known to have shard channels.
type shards struct {
	mu     sync.Mutex
	asked  time.Time // time of the last reply
	has    bool
	closed bool
	hubs   map[uint16]*hub               // by slot: a connection leads to one server
	of     map[*wire.Script]*wire.Script // the scripts for shard channels
}

// firstSharded is the first version of Redis that has shard channels.
const firstSharded = 7

// Sharded reports whether the node publishes on shard channels; false before the first call.
func (n *Node) Sharded() bool {
	if !n.cluster {
		return false
	}
	n.shards.mu.Lock()
	defer n.shards.mu.Unlock()
	return n.shards.has
}

// askAgain is how long a cluster counts as one without shard channels: it may be upgraded.
const askAgain = 10 * time.Second

// askForShards finds out whether the cluster has shard channels, unless this is known. Every user
// may send HELLO.
func (n *Node) askForShards(ctx context.Context) {
	s := &n.shards
	s.mu.Lock()
	known := s.has || !s.asked.IsZero() && time.Since(s.asked) < askAgain
	s.mu.Unlock()
	if known {
		return
	}
	reply, err := n.client.Do(ctx, "hello").Result()
	if _, said := err.(redis.Error); err != nil && !said {
		return // the next call asks again
	}
	s.mu.Lock()
	s.asked, s.has = time.Now(), majorOf(reply) >= firstSharded && !s.closed
	has := s.has
	s.mu.Unlock()
	if has {
		n.moveListeners()
	}
}

// moveListeners moves the listeners from before the detection of shard channels to the shard hubs.
func (n *Node) moveListeners() { n.hub.move(n.hubFor) }

// majorOf returns the major version in a reply to HELLO; 0 if there is none.
func majorOf(reply any) int {
	major, _, _ := strings.Cut(field[string](reply, "version"), ".")
	n, _ := strconv.Atoi(major)
	return n
}

// field returns a field of a reply to HELLO; the zero value if it is missing.
func field[T any](reply any, name string) (value T) {
	switch r := reply.(type) {
	case map[any]any:
		value, _ = r[name].(T)
	case []any:
		for i := 0; i+1 < len(r); i += 2 {
			if r[i] == name {
				value, _ = r[i+1].(T)
			}
		}
	}
	return value
}

// scriptFor returns the script to send to this node for s.
func (n *Node) scriptFor(s *wire.Script) *wire.Script {
	if !n.cluster {
		return s
	}
	n.shards.mu.Lock()
	defer n.shards.mu.Unlock()
	if !n.shards.has {
		return s
	}
	if n.shards.of == nil {
		n.shards.of = make(map[*wire.Script]*wire.Script)
	}
	if n.shards.of[s] == nil {
		n.shards.of[s] = s.Sharded()
	}
	return n.shards.of[s]
}

// hubFor returns the hub of a channel.
func (n *Node) hubFor(channel string) *hub {
	if !n.Sharded() {
		return &n.hub
	}
	slot := slotOf(channel)
	n.shards.mu.Lock()
	defer n.shards.mu.Unlock()
	if n.shards.closed { // and so is that hub
		return &n.hub
	}
	h := n.shards.hubs[slot]
	if h == nil {
		if n.shards.hubs == nil {
			n.shards.hubs = make(map[uint16]*hub)
		}
		h = &hub{sharded: true}
		h.init(n.client)
		n.shards.hubs[slot] = h
	}
	return h
}

// closeHubs ends all subscriptions, and the node's listening.
func (n *Node) closeHubs() {
	n.hub.close()
	n.shards.mu.Lock()
	hubs := n.shards.hubs
	n.shards.hubs, n.shards.has, n.shards.closed = nil, false, true
	n.shards.mu.Unlock()
	for _, h := range hubs {
		h.close()
	}
}

// slots is the number of slots of a cluster.
const slots = 16384

// slotOf returns the slot of a channel or key: CRC-16 (XMODEM) of its hash tag, or of the whole
// name without one (redis.io, "Redis cluster specification").
func slotOf(name string) uint16 {
	if i := strings.IndexByte(name, '{'); i >= 0 {
		if n := strings.IndexByte(name[i+1:], '}'); n > 0 {
			name = name[i+1 : i+1+n]
		}
	}
	crc := uint16(0)
	for i := range len(name) {
		crc ^= uint16(name[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % slots
}
