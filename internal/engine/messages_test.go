package engine

import (
	"testing"

	"github.com/quorumlock/quorumlock/internal/core"
)

func TestMessagesToWaiters(t *testing.T) {
	for text, want := range map[string]core.Event{
		"turn a:1 x y":   {Kind: core.Turn, Cell: 2},
		"next a:1 x y":   {Kind: core.Next, Cell: 2},
		"slot a:1 3 x y": {Kind: core.TurnForSlot, Cell: 2, Slot: 3},
		"slot a:1 z x y": {Kind: core.TurnForSlot, Cell: 2, Slot: -1},
	} {
		m, ok := ParseMessage(text)
		if e, known := m.Event(2, ""); !ok || !known || m.Waiter != "a:1" || m.Lock != "x y" || e != want {
			t.Errorf("%q: %+v, %+v", text, m, e)
		}
	}
	for _, text := range []string{"", "turns a:1 x", "handoff a:1 x"} {
		if m, ok := ParseMessage(text); ok {
			t.Errorf("%q: %+v", text, m)
		}
	}
}
