package coresim

import (
	"fmt"
	"strings"

	"github.com/quorumlock/quorumlock/internal/core"
)

var (
	events = [...]string{"", "start", "reply to", "turn", "turn for slot", "taken", "handoff", "next", "tick", "cancel", "extend", "downgrade", "unlock", "detach", "give back", "close"}
	does   = [...]string{"", "acquire", "raise", "yield", "release", "release and leave", "leave", "renew", "restore", "keep", "park", "attach", "return"}
)

// telling describes a step of a machine, for the trace.
func telling(c *call, was core.Phase, e *core.Event, fx *core.Effects) string {
	var b strings.Builder
	b.WriteString(events[e.Kind])
	switch e.Kind {
	case core.Replied:
		r := &e.Reply
		b.WriteString(" " + ask(&e.Call))
		switch {
		case r.Err != nil:
			fmt.Fprintf(&b, ": %v", r.Err)
		case e.Call.Do == core.Acquire && !r.OK:
			fmt.Fprintf(&b, ": refused, holder %s, free %v, ours %v", r.Holder, r.Free, r.Ours)
		default:
			fmt.Fprintf(&b, ": %v %d", r.OK || r.First, r.Token)
		}
	case core.Turn, core.TurnForSlot:
		fmt.Fprintf(&b, " n%d", e.Cell+1)
	case core.Handoff:
		fmt.Fprintf(&b, " n%d attempt %d token %d", e.Cell+1, e.Attempt, e.Token)
	}
	if now := c.machine.Phase(); now != was {
		fmt.Fprintf(&b, "; %s -> %s", was, now)
	} else {
		b.WriteString("; " + now.String())
	}
	for i := range fx.Calls {
		b.WriteString("; " + ask(&fx.Calls[i]))
	}
	return b.String()
}

// ask describes a call of a machine, for the trace.
func ask(k *core.Call) string {
	s := fmt.Sprintf("%s n%d %d", does[k.Do], k.Cell+1, k.Attempt)
	if k.Whose != core.Own {
		s += [...]string{"", " parked", " former"}[k.Whose]
	}
	if k.Successor {
		s += " successor"
	}
	if k.All {
		s += " all"
	}
	return s
}
