package quorum

import (
	"testing"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/scripts"
)

// waiting returns a waiter for a lock of so many cells, all of which are needed, in its second attempt.
func waiting(t *testing.T, cells int) *waiter {
	t.Helper()
	set, err := quorumlock.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := NewClient()
	t.Cleanup(c.Close)
	all := make([]Cell, cells)
	for i := range all {
		all[i] = Cell{idle{}, string(rune('a' + i))}
	}
	w := newWaiter(New(c, "x", Majority(cells, cells), all, set, nil))
	w.begin()
	w.begin()
	return w
}

// An attempt may be refused where the one before it has yet to yield, and either may be heard first.
func TestACellThatHasBecomeOpenStaysOpenWhenARefusalIsHeard(t *testing.T) {
	for name, hear := range map[string]func(w *waiter){
		"refused first": func(w *waiter) { w.refused(0, scripts.Answer{}); w.yielded(0, true) },
		"open first":    func(w *waiter) { w.yielded(0, true); w.refused(0, scripts.Answer{}) },
	} {
		w := waiting(t, 1)
		if hear(w); !w.look().ready {
			t.Errorf("%s: not ready, with the only cell open", name)
		}
	}
}

// What the former attempt was handed, this one has taken over: it is no reason to make another.
func TestAHandToAFormerAttemptWakesOnlyIfThisOneHasNotMetIt(t *testing.T) {
	w := waiting(t, 1)
	w.handed(w.lock.cells[0], 0, 1, 7)
	if now := w.look(); now.woken || now.handed {
		t.Errorf("%+v, though this attempt has yet to be answered there", now)
	}
	w.refused(0, scripts.Answer{})
	if w.look().woken {
		t.Error("woken by what came before the answer: it has been taken over")
	}
	w.handed(w.lock.cells[0], 0, 1, 7)
	if now := w.look(); !now.woken || now.handed {
		t.Errorf("%+v, want it woken, and not to count the hand", now)
	}
	w.handed(w.lock.cells[0], 0, 2, 8)
	if !w.look().handed {
		t.Error("the hand to this attempt does not count")
	}
}
