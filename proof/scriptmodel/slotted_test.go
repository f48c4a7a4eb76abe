package scriptmodel_test

import (
	"slices"
	"strconv"
	"strings"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// slotted is a call on a semaphore.
func (g *generator) slotted(owner quorumlock.Owner) wire.Call {
	permits := pick(g, 1, 2, 2, 3, 3, 9, 1000)
	slot := g.IntN(min(permits, 4))
	v, _ := g.peek(wire.SlotsKey(g.name))
	taken := slices.DeleteFunc(slices.Clone(v.Members), func(m scriptmodel.Member) bool { return m.Score < 0 })
	if len(taken) > 0 && g.chance(0.7) {
		m := taken[g.IntN(len(taken))]
		owner = quorumlock.Owner(m.Name)
		if g.chance(0.8) {
			slot = int(m.Score) % permits
		}
	}
	waiter := g.slotWaiter()
	e := g.entry()
	if waiter != "" && g.chance(0.5) {
		e.Waiter = waiter
	} else {
		waiter = g.waiter()
	}
	own := uint64(1)
	if v, ok := g.peek(wire.TokenKey(g.name)); ok {
		for _, f := range v.Fields {
			if n, err := strconv.ParseUint(f.Value, 10, 64); err == nil && (f.Name == strconv.Itoa(slot) || g.chance(0.2)) {
				own = n
			}
		}
	}
	hint := g.hint()
	if g.chance(0.2) {
		hint = own + g.Uint64N(3) - 1
	}
	var c wire.Call
	switch p := g.Float64(); {
	case p < 0.40:
		if g.chance(0.8) {
			owner = g.fresh()
		}
		c = g.guarded(wire.AcquireInTurn(g.name, owner, g.ttl(), hint, e))
	case p < 0.50:
		c = g.guarded(wire.Restore(g.name, owner, g.ttl(), hint))
	case p < 0.55:
		c = wire.Raise(g.name, owner, g.ttl(), own, own+g.Uint64N(3)*pick[uint64](g, 1, 1000, 1e9, 1e13))
	case p < 0.62:
		c = wire.Renew(g.name, owner, g.ttl())
	case p < 0.72:
		c = wire.Release(g.name, owner, 1)
	case p < 0.80:
		c = wire.ReleaseAndLeave(g.name, owner, waiter, g.chance(0.5))
	case p < 0.88:
		c = wire.Yield(g.name, owner, e)
	case p < 0.95:
		c = wire.Leave(g.name, waiter, g.chance(0.5))
	case p < 0.96:
		c = wire.ForceRelease(g.name)
	default:
		c = wire.Inspect(g.name, pick(g, 0, 1, 2, 100))
	}
	if c = c.OfSemaphore(permits, slot); g.chance(0.4) {
		c = c.Only(g.IntN(permits))
	}
	return c
}

// slotWaiter is a waiter that has a successor with a slot, if there is one.
func (g *generator) slotWaiter() quorumlock.Owner {
	v, _ := g.peek(wire.SlotsKey(g.name))
	for _, m := range v.Members {
		if m.Score < 0 && g.chance(0.5) {
			return quorumlock.Owner(strings.TrimSuffix(m.Name, "/"))
		}
	}
	return ""
}

// fresh is an owner of an attempt.
func (g *generator) fresh() quorumlock.Owner {
	return wire.OfCell(wire.OwnerOf(g.waiter(), 1+g.IntN(4)), g.IntN(2))
}
