package engine

import (
	"strconv"
	"strings"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Message is a message of queue.lua to a waiter. Any publisher can send one. So a handoff counts
// only with its proof, and other messages only make a waiter look.
type Message struct {
	Waiter  quorumlock.Owner
	Lock    string
	event   core.Event
	handoff wire.Handoff
}

// ParseMessage parses a message. It returns false for any other text.
func ParseMessage(text string) (m Message, ok bool) {
	what, rest, _ := strings.Cut(text, " ")
	if what == "handoff" {
		h, ok := wire.ParseHandoff(rest)
		e := core.Event{Kind: core.Handoff, Cell: int32(h.Cell), Attempt: int32(h.Attempt), Token: h.Token, Slot: int32(h.Slot)}
		return Message{h.Waiter, h.Lock, e, h}, ok
	}
	waiter, name, _ := strings.Cut(rest, " ")
	var e core.Event
	switch what {
	case "turn":
		e.Kind = core.Turn
	case "slot":
		number, of, _ := strings.Cut(name, " ")
		slot, err := strconv.ParseInt(number, 10, 32)
		if err != nil {
			slot = -1 // no semaphore has this slot
		}
		e.Kind, e.Slot, name = core.TurnForSlot, int32(slot), of
	case "next":
		e.Kind = core.Next
	default:
		return m, false
	}
	return Message{Waiter: quorumlock.Owner(waiter), Lock: name, event: e}, true
}

// Event returns the event for the waiter's machine. cell is the lock's cell at the sender's node,
// secret the waiter's. It returns false for a handoff of another cell or without proof.
func (m *Message) Event(cell int, secret string) (e core.Event, ok bool) {
	if m.event.Kind == core.Handoff {
		return m.event, m.handoff.Cell == cell && m.handoff.ProvenBy(secret)
	}
	e = m.event
	e.Cell = int32(cell)
	return e, true
}
