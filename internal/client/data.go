package client

import (
	"context"
	"errors"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// The data of a hold is kept like the value of a leader, in the same key: see proclaim.lua. It does
// not change, so it has one version. No call waits for its writes.

// dataVersion is below the versions of a leader's values: a holder with data is no leader.
const dataVersion = 0

// writeData writes the data of a hold to all cells, for ttl.
func (c *session) writeData(ttl time.Duration) {
	owner, token := c.Owner(), c.Token()
	for cell := range c.lock.cells {
		c.lock.putData(cell, owner, token, ttl, true)
	}
}

// renewData renews the data at the cells of calls that renew the hold, for as long as the hold.
func (c *session) renewData(calls []core.Call) {
	owner, token := c.Owner(), c.Token()
	for i := range calls {
		if k := &calls[i]; k.Do.Renews() {
			c.lock.putData(int(k.Cell), owner, token, max(c.lock.set.TTL, k.For), false)
		}
	}
}

// endData deletes the data of a hold that has ended. After an UnlockAfter, it keeps the data with
// the lock.
func (c *session) endData() {
	c.mu.Lock()
	keep := c.hold.kept - c.lock.client.mono()
	c.mu.Unlock()
	if keep > 0 {
		c.writeData(keep)
		return
	}
	for cell := range c.lock.cells {
		_ = c.lock.Ask(cell, wire.Withdraw(c.lock.Key(cell), c.Owner()).At(cell), func(wire.Reply) {})
	}
}

// putData writes the data of a hold to a cell. Unless whole, it renews the data, and writes it only
// if the cell lacks it.
func (l *Lock) putData(cell int, owner quorumlock.Owner, token uint64, ttl time.Duration, whole bool) {
	call := wire.KeepProclaimed(l.Key(cell), owner, ttl, token, dataVersion)
	if whole {
		call = wire.Proclaim(l.Key(cell), owner, ttl, token, dataVersion, l.set.Data)
	}
	_ = l.Ask(cell, call.At(cell), func(reply wire.Reply) {
		p, err := reply.Proclaimed()
		switch {
		case err != nil && IsIncurable(err):
			l.client.dataRefused.Do(func() {
				l.client.tell(func() {
					l.set.Logger.Warn("quorumlock: a node refuses the data of holds", "lock", l.name, "error", l.NodeError(cell, err))
				})
			})
		case err == nil && p == wire.NotThere && !whole:
			l.putData(cell, owner, token, ttl, true)
		}
	})
}

// withData adds the data of the holder to a refusal, if l has data, too. It waits for the first
// node with the data of that holder, or for a quorum without.
func (l *Lock) withData(ctx context.Context, err error) error {
	if l.set.Data == "" || ctx.Err() != nil {
		return err
	}
	held, ok := errors.AsType[*quorumlock.HeldError](err)
	if !ok || held.Holder == "" {
		return err
	}
	answered := 0
	_ = l.client.gather(ctx, l.cells, &l.set, func(cell int) wire.Call { return wire.Leader(l.Key(cell)) }, func(_ int, reply wire.Reply) bool {
		s, err := reply.Led()
		if err != nil {
			return false
		}
		if s.Value != "" && wire.Base(s.Holder) == held.Holder {
			held.Data = s.Value
			return true
		}
		answered++
		return answered >= l.config.Tree.Need()
	})
	return err
}
