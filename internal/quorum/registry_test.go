package quorum

import (
	"fmt"
	"testing"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/options"
)

// lockOf returns a lock of an owner.
func lockOf(c *Client, o quorumlock.Owner, name string) *Lock {
	return New(c, name, core.Majority(1, 1), []Cell{{Name: name}}, options.Settings{Owner: o}, nil)
}

// Many callers wait, each for its own owner. A grant wakes the callers of its owner only.
func TestAnOwnerThatAcquiresWakesNoOther(t *testing.T) {
	c := NewClient("test")
	defer c.Close()
	wakes := make(map[quorumlock.Owner]<-chan struct{})
	for i := range 10 {
		o := quorumlock.Owner(fmt.Sprint("owner ", i))
		c.awaitOwner(o)
		_, wakes[o] = c.enters(lockOf(c, o, "x"))
	}
	held := &call{lock: lockOf(c, "owner 3", "x"), number: 1}
	c.enlist(held)
	if err := c.hold(held); err != nil {
		t.Fatal(err)
	}
	for o, wake := range wakes {
		select {
		case <-wake:
			if o != "owner 3" {
				t.Errorf("%s is woken", o)
			}
		default:
			if o == "owner 3" {
				t.Error("it is not woken")
			}
		}
		c.leaveOwner(o)
	}
	c.forget(held)
	if len(c.named) > 0 || len(c.holders) > 0 {
		t.Errorf("owners %v and holders %v are left", c.named, c.holders)
	}
}

// Holds of one name are found, and end, in any order.
func TestHoldersOfOneNameLeaveInAnyOrder(t *testing.T) {
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		c := NewClient("test")
		var all [3]*call
		for i := range all {
			all[i] = &call{lock: lockOf(c, "", "x"), number: uint64(i + 1)}
			c.enlist(all[i])
			if err := c.hold(all[i]); err != nil {
				t.Fatal(err)
			}
		}
		left := map[*call]bool{all[0]: true, all[1]: true, all[2]: true}
		for _, i := range order {
			c.forget(all[i])
			delete(left, all[i])
			found := 0
			for w := c.holders[all[0].lock.cells[0]]; w != nil; w = w.older {
				if found++; !left[w] || w.older != nil && w.older.newer != w {
					t.Errorf("%v: after %d, call %d is found", order, i, w.number)
				}
			}
			if found != len(left) {
				t.Errorf("%v: after %d, %d are found of %d", order, i, found, len(left))
			}
		}
		c.Close()
	}
}
