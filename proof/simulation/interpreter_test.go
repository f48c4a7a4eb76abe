package simulation

import (
	"bufio"
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded/redislua"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// The scripts do with the interpreter what they do with miniredis's own: the same replies, and the same data.
func TestInterpreterAgreesWithMiniredis(t *testing.T) {
	for seed := range uint64(50) {
		g := newGenerator(seed)
		ours, theirs := newServer(t), newServer(t)
		in := redislua.New()
		in.Attach(redislua.Node{Redis: ours.Server(), Publish: func(string, string) (int, error) { return 0, nil }})
		var reply bytes.Buffer
		peer := server.NewPeer(bufio.NewWriter(&reply))
		now := time.UnixMilli(1e12)
		for range 100 {
			c := anyCall(g)
			keys, argv := c.Keys(), c.Args()
			now = now.Add(g.between(0, 300*time.Millisecond))
			for _, m := range []*miniredis.Miniredis{ours, theirs} {
				m.SetTime(now)
				m.FastForward(100 * time.Millisecond)
			}
			got := in.Run(c.Script.Source, keys, argv)
			reply.Reset()
			theirs.Server().Dispatch(peer, append(append([]string{"eval", c.Script.Source, fmt.Sprint(len(keys))}, keys...), argv...))
			peer.Flush()
			if !bytes.Equal(got, reply.Bytes()) {
				t.Fatalf("seed %d: %v %v: %q, and %q by miniredis", seed, keys, argv, got, reply.Bytes())
			}
			if a, b := ours.Dump(), theirs.Dump(); a != b {
				t.Fatalf("seed %d: %v %v has left\n%s\nand by miniredis\n%s", seed, keys, argv, a, b)
			}
		}
	}
}

func newServer(t *testing.T) *miniredis.Miniredis {
	m := miniredis.NewMiniRedis()
	c, err := m.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(); m.Close() })
	return m
}

func anyCall(g generator) wire.Call {
	who := func() quorumlock.Owner { return quorumlock.Owner(fmt.Sprintf("c:%d", g.IntN(4))) }
	cell := func() quorumlock.Owner { return wire.OfCell(who(), g.IntN(3)) }
	ttl := g.between(10*time.Millisecond, time.Second)
	entry := wire.Entry{Waiter: who(), Ticket: g.Int64N(1000), TTL: ttl}
	if g.chance(0.7) {
		entry.Successor = wire.Successor{Attempt: 1 + g.IntN(3), TTL: ttl, Cell: g.IntN(3), Secret: "s"}
	}
	switch g.IntN(8) {
	case 0:
		return wire.Acquire("x", who(), ttl, 1+g.IntN(2), g.Uint64N(100))
	case 1, 2:
		return wire.AcquireInTurn("x", cell(), ttl, g.Uint64N(100), entry)
	case 3:
		return wire.Restore("x", cell(), ttl, g.Uint64N(100))
	case 4:
		return wire.Raise("x", who(), ttl, g.Uint64N(100), 100+g.Uint64N(100))
	case 5:
		return wire.Renew("x", who(), ttl)
	case 6:
		return wire.Leave("x", who(), g.chance(0.5))
	default:
		if g.chance(0.5) {
			return wire.Yield("x", cell(), entry)
		}
		if g.chance(0.5) {
			return wire.ReleaseAndLeave("x", cell(), who(), true)
		}
		return wire.Release("x", who(), 1+g.IntN(2))
	}
}
