package client

import (
	"fmt"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/options"
)

// lockOf returns a lock of an owner.
func lockOf(c *Client, o quorumlock.Owner, name string) *Lock {
	return New(c, name, NewForm(core.Majority(1, 1), options.Settings{Owner: o}), []Cell{{Name: name}}, nil)
}

// holdOf returns a call that has l.
func holdOf(t *testing.T, c *Client, l *Lock) *session {
	t.Helper()
	held := &session{lock: l, number: c.calls.Add(1)}
	c.enlist(held)
	if err := c.hold(c.time(), held); err != nil {
		t.Fatal(err)
	}
	return held
}

// Two owners wait for many locks of each kind, some with a common member. One owner acquires all
// its locks. Each hold wakes only the calls for its lock. A call looks at one hold, however many
// there are.
func TestAHoldOfAnOwnerWakesOnlyTheCallsForItsLock(t *testing.T) {
	c := NewClient("test")
	defer c.Close()
	of := func(o quorumlock.Owner, members ...Cell) *Lock {
		var all []*Lock
		set := options.Settings{Owner: o, NodeTimeout: time.Second}
		for _, m := range members {
			all = append(all, New(c, m.Name, NewForm(core.Majority(1, 1), set), []Cell{m}, nil))
		}
		if len(all) == 1 {
			return all[0]
		}
		l, err := All("all", all, set)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	kinds := map[string][]Cell{ // the last cell gets a name below
		"mutex":         {{}},
		"reader":        {{Shared: true}},
		"slot":          {{Permits: 2}},
		"with a mutex":  {{Name: "mutex"}, {}},
		"with a reader": {{Name: "reader", Shared: true}, {}},
		"with a slot":   {{Name: "slot", Permits: 100}, {}},
		"readers":       {{Name: "reader", Shared: true}, {Shared: true}},
	}
	type waiting struct {
		lock *Lock
		wake <-chan struct{}
	}
	var waits []waiting
	var holds []*session
	for kind, cells := range kinds {
		for i := range 50 {
			for _, o := range []quorumlock.Owner{"me", "other"} {
				cells[len(cells)-1].Name = fmt.Sprint(kind, i)
				l := of(o, cells...)
				wake, stop := c.awaitOwner(l)
				defer stop()
				waits = append(waits, waiting{l, wake})
			}
		}
	}
	for _, w := range waits {
		if w.lock.set.Owner == "me" {
			holds = append(holds, holdOf(t, c, w.lock))
			for _, other := range waits {
				select {
				case <-other.wake:
					if other.lock != w.lock {
						t.Errorf("the hold of %q by %s wakes a call for %q by %s", w.lock.names, w.lock.set.Owner, other.lock.names, other.lock.set.Owner)
					}
				default:
					if other.lock == w.lock {
						t.Errorf("the hold of %q does not wake the call for it", w.lock.names)
					}
				}
			}
		}
	}
	for _, w := range waits {
		looks := 0
		c.holdOf(w.lock.set.Owner, w.lock, func(*session) bool { looks++; return false })
		if looks > 1 {
			t.Errorf("a call for %q looks at %d holds", w.lock.names, looks)
		}
		if has := w.lock.set.Owner == "me"; (c.find(w.lock.set.Owner, w.lock) != nil) != has || c.enters(w.lock) != has {
			t.Errorf("%s has %q: want %v", w.lock.set.Owner, w.lock.names, has)
		}
	}
	for _, h := range holds {
		c.forget(h)
	}
	if len(c.holders) > 0 {
		t.Errorf("%v is left", c.holders)
	}
}

// A call that wants a cell alone is woken when its owner shares the cell, from the start or later.
func TestAnOwnerThatSharesACellWakesThoseWhoWantItAlone(t *testing.T) {
	for _, shared := range []bool{true, false} {
		c := NewClient("test")
		x, y := lockOf(c, "me", "x"), lockOf(c, "me", "y")
		both, err := All("both", []*Lock{y, x}, options.Settings{Owner: "me", NodeTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		wake, stop := c.awaitOwner(both)
		held := holdOf(t, c, New(c, "x", NewForm(core.Majority(1, 1), x.set), []Cell{{Name: "x", Shared: shared}}, nil))
		if !shared {
			held.downgraded.Store(true)
			c.share(held)
		}
		select {
		case <-wake:
		default:
			t.Errorf("shared from the start: %v: the call is not woken", shared)
		}
		if c.sharer("me", both) != held || !c.enters(both) {
			t.Errorf("shared from the start: %v: the hold is not found", shared)
		}
		c.forget(held)
		stop()
		if len(c.holders) > 0 || len(c.waiters) > 0 {
			t.Errorf("holds %v and calls %v are left", c.holders, c.waiters)
		}
		c.Close()
	}
}

// Holds of one name are found, and end, in any order.
func TestHoldersOfOneNameLeaveInAnyOrder(t *testing.T) {
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		c := NewClient("test")
		var all [3]*session
		for i := range all {
			all[i] = holdOf(t, c, lockOf(c, "", "x"))
		}
		left := map[*session]bool{all[0]: true, all[1]: true, all[2]: true}
		for _, i := range order {
			c.forget(all[i])
			delete(left, all[i])
			found := 0
			for k := c.holders[spot{names: "x"}]; k != nil; k = k.older {
				if found++; !left[k.session] || k.older != nil && k.older.newer != k {
					t.Errorf("%v: after %d, call %d is found", order, i, k.session.number)
				}
			}
			if found != len(left) {
				t.Errorf("%v: after %d, %d are found of %d", order, i, found, len(left))
			}
		}
		c.Close()
	}
}
