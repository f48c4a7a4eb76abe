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
	c := NewClient("test")
	t.Cleanup(c.Close)
	all := make([]Cell, cells)
	for i := range all {
		all[i] = Cell{idle{}, string(rune('a' + i))}
	}
	w := newWaiter(New(c, "x", Majority(cells, cells), all, set, nil), 1, func() int { return 1 })
	newAttempt(w.lock, w)
	newAttempt(w.lock, w)
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

// The next attempt takes over earlier handoffs: they are no reason to make another.
func TestAHandoffToAnEarlierAttemptWakesOnlyIfThisOneHasNotMetIt(t *testing.T) {
	w := waiting(t, 1)
	first, second := scripts.Handoff{Attempt: 1, Token: 7}, scripts.Handoff{Attempt: 2, Token: 8}
	w.handed(w.lock.cells[0], first)
	if now := w.look(); now.woken || now.handed {
		t.Errorf("%+v, though this attempt has yet to be answered there", now)
	}
	w.refused(0, scripts.Answer{})
	if w.look().woken {
		t.Error("woken by what came before the answer: this attempt has taken it over")
	}
	w.handed(w.lock.cells[0], first)
	if now := w.look(); !now.woken || now.handed {
		t.Errorf("%+v, want it woken, and not to count the handoff", now)
	}
	w.handed(w.lock.cells[0], second)
	if !w.look().handed {
		t.Error("the handoff to this attempt does not count")
	}
}
