package scriptmodel_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// slotScene is a semaphore with holders, waiters and their successors. Now and then a part is
// missing, or strange. The next call is likely to be about one of them.
func (g *generator) slotScene() command {
	name, ms, permits := g.name, int64(g.now/1000), pick(g, 1, 2, 2, 3, 3, 17)
	expires := ms + pick[int64](g, 5000, 5000, 50_000)
	holds := scriptmodel.Value{Members: []scriptmodel.Member{{Name: "quorumlock_semaphore", Score: pick(g, math.Inf(1), 1e15+float64(permits), 1e15+float64(permits), 1e15+2)}}, Expires: expires}
	slots, queue, entries, tokens := scriptmodel.Value{Expires: expires}, scriptmodel.Value{Expires: expires}, scriptmodel.Value{Expires: expires}, scriptmodel.Value{Expires: expires}
	count, waiters := permits, g.IntN(5)
	line, crowd := g.chance(0.1), g.chance(0.01)
	if line { // many free slots, and about as many waiters
		permits, count, waiters = pick(g, 18, 20, 24), g.IntN(4), pick(g, 15, 16, 17, 18, 19, 20, 23)
	}
	if crowd { // a forced release calls a waiter for each slot
		permits, count, waiters = 103, pick(g, 99, 100, 101, 102), 105
	}
	var owners []string
	for slot := range count {
		if g.chance(0.3) && count < 99 {
			continue
		}
		owner := fmt.Sprintf("c9:%d.0", slot)
		if g.chance(0.5) && slot < 4 {
			waiter := fmt.Sprintf("c0:%d/", 1+slot)
			owner = waiter + pick(g, "1.0", "2.0", "2.0", "2.1")
			if g.chance(0.9) {
				slots.Members = append(slots.Members, scriptmodel.Member{Name: waiter, Score: float64(-1 - slot)})
			}
		}
		owners = append(owners, owner)
		slots.Members = append(slots.Members, scriptmodel.Member{Name: owner, Score: float64(slot)})
		end := ms + pick[int64](g, -1, 0, 1, 50, 1000, 4000)
		if crowd {
			end = ms + 4000
		}
		holds.Members = append(holds.Members, scriptmodel.Member{Name: owner, Score: float64(end)})
	}
	for i := range waiters {
		waiter := fmt.Sprintf("c0:%d", 1+i)
		queue.Members = append(queue.Members, scriptmodel.Member{Name: waiter, Score: float64(int64(epoch) + int64(i))})
		entry := g.slotEntry(ms, permits)
		if crowd || line && g.chance(0.97) {
			entry = fmt.Sprintf("%d 1k%dp0", ms+pick[int64](g, 5000, 5000, 5000, 2501, 2500, 1000), permits)
		}
		entries.Fields = append(entries.Fields, scriptmodel.Field{Name: waiter, Value: entry})
	}
	for slot := range min(permits, 20) {
		if g.chance(0.85) {
			token := pick(g, "5", "7", "9", "9007199254740989", "9007199254740990", "9007199254740991")
			if g.chance(0.2) {
				token = pick(g, "seven", "nan", "-5", "")
			}
			tokens.Fields = append(tokens.Fields, scriptmodel.Field{Name: strconv.Itoa(slot), Value: token})
		}
	}
	g.follow = func() wire.Call {
		g.name = name
		if crowd {
			return wire.ForceRelease(name).OfSemaphore(permits, 0)
		}
		return g.onScene(owners, max(4, waiters), permits)
	}
	if g.chance(0.15) {
		holds = scriptmodel.Value{}
	}
	slices.SortFunc(entries.Fields, byName)
	slices.SortFunc(tokens.Fields, byName)
	return scene(map[string]scriptmodel.Value{name: holds, wire.SlotsKey(name): slots, wire.QueueKey(name): queue, wire.EntriesKey(name): entries, wire.TokenKey(name): tokens})
}

// slotEntry is the entry of a waiter for a slot, most often with a successor.
func (g *generator) slotEntry(ms int64, permits int) string {
	deadline := strconv.FormatInt(ms+pick[int64](g, 0, 1, 1000, 1001, 2500, 2501, 5000, 5000), 10)
	words := []string{deadline, fmt.Sprintf("1k%dp%d%s", permits, g.IntN(permits), pick(g, "", "o0")), strconv.FormatInt(ms-pick[int64](g, 0, 0, 1, 649, 650, 651), 10), pick(g, "1800", "1800", "3"), "0", pick(g, "1", "2", "3"), "s"}
	switch i := g.IntN(30); {
	case i < 7:
		words[i] = ""
	case i == 7:
		words = append([]string{deadline}, words...)
	case i == 8:
		words = append(words, "s")
	case i == 9:
		words[1] = pick(g, "k2p0", "1kp0", "1k2p", "1")
	case i < 14:
		words = words[:2]
	}
	return strings.Join(words, " ")
}

// onScene is a call about a scene with so many waiters.
func (g *generator) onScene(owners []string, waiters, permits int) wire.Call {
	slot := g.IntN(min(permits, 4))
	waiter := quorumlock.Owner(fmt.Sprintf("c0:%d", 1+g.IntN(waiters)))
	owner := quorumlock.Owner("c9:9.0")
	if len(owners) > 0 && g.chance(0.9) {
		owner = quorumlock.Owner(pick(g, owners...))
	}
	e := g.entry()
	e.Waiter, e.Ticket = waiter, int64(epoch)+g.Int64N(5)
	e.Successor = wire.Successor{Attempt: pick(g, 1, 2, 3, 3, 4), TTL: time.Second, Secret: "s"}
	if v, ok := g.peek(wire.SlotsKey(g.name)); ok {
		for _, m := range v.Members {
			if m.Name == string(owner) && g.chance(0.9) {
				slot = int(m.Score) % permits
			}
		}
	}
	var c wire.Call
	switch g.IntN(12) {
	case 0, 1, 2:
		slot = g.IntN(min(permits, 4))
		c = wire.AcquireInTurn(g.name, wire.OfCell(wire.OwnerOf(waiter, e.Successor.Attempt), 0), g.ttl(), g.hint(), e)
	case 3:
		if g.chance(0.3) {
			owner = wire.OfCell(wire.SuccessorOf(waiter, 1+g.IntN(3)), g.IntN(2))
		}
		c = wire.Restore(g.name, owner, g.ttl(), g.hint())
		slot = g.IntN(min(permits, 4))
	case 4:
		own := uint64(g.IntN(2))
		if v, ok := g.peek(wire.TokenKey(g.name)); ok {
			for _, f := range v.Fields {
				if n, err := strconv.ParseUint(f.Value, 10, 64); err == nil && f.Name == strconv.Itoa(slot) {
					own = n
				}
			}
		}
		c = wire.Raise(g.name, owner, g.ttl(), own, own+g.Uint64N(3))
	case 5:
		c = wire.Renew(g.name, owner, g.ttl())
	case 6, 7:
		c = wire.Release(g.name, owner, 1)
	case 8:
		c = wire.ReleaseAndLeave(g.name, owner, waiter, g.chance(0.7))
	case 9:
		c = wire.Yield(g.name, owner, e)
	case 10:
		c = wire.Leave(g.name, waiter, g.chance(0.7))
	default:
		if c = wire.ForceRelease(g.name); g.chance(0.3) {
			c = wire.Inspect(g.name, pick(g, 0, 1, 2))
		}
	}
	if c = c.OfSemaphore(permits, slot); g.chance(0.4) {
		c = c.Only(g.IntN(permits))
	}
	return c
}
