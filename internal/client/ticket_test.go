package client

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/testkit/wallclock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// The wall clock may step while a process runs. Callers are still served in the order of calls.
func TestTicketsDoNotFollowAWallClockThatIsSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ahead := time.Duration(0)
		c := NewClient("test")
		defer c.Close()
		c.Simulate(func() time.Time { return wallclock.Now(ahead) }, nil, nil)
		first := c.nextTicket()
		if second := c.nextTicket(); second != first+1 {
			t.Errorf("a ticket %d µs after the last, want 1", second-first)
		}
		for _, ahead = range []time.Duration{-time.Hour, time.Hour} {
			before := c.nextTicket()
			time.Sleep(time.Second)
			if got := time.Duration(c.nextTicket()-before) * time.Microsecond; (got - time.Second).Abs() > time.Millisecond {
				t.Errorf("with the wall clock %v ahead: a ticket %v after the last, want a second", ahead, got)
			}
		}
	})
}

// One node of three has replaced the ticket of a first attempt by its own clock. The waiter may be
// first there, and keep out one that is first at the others: it asks again at once.
func TestAWaiterThatIsFirstAtAMinorityAsksAgain(t *testing.T) {
	for name, ahead := range map[string][]time.Duration{"one node": {0, 0, -time.Hour}, "none": {0, 0, 0}} {
		t.Run(name, func(t *testing.T) {
			c := NewClient("test")
			defer c.Close()
			cells := make([]Cell, 3)
			for i := range cells {
				cells[i] = Cell{Node: bareNode{name: fmt.Sprint(i)}, Name: "x"}
			}
			l := New(c, "x", NewForm(core.Majority(3, 3), options.Settings{TTL: time.Second, NodeTimeout: time.Second}), cells, nil)
			k := l.newSession(&l.config, c.nextTicket(), nil, nil)
			k.machine.Step(c.time(), core.Event{Kind: core.Start})
			b := &request{ticket: k.caller.Ticket, unsure: true}
			var replies []wire.Reply
			for i := range cells {
				call := core.Call{Do: core.Acquire, Cell: int32(i), Attempt: 1}
				b.calls = append(b.calls, call)
				replies = append(replies, wire.Reply{Value: []any{int64(0), int64(1000), int64(0), "o:1.1", time.UnixMicro(k.caller.Ticket).Add(ahead[i]).UnixMilli()}})
				k.machine.Step(c.time(), core.Event{Kind: core.Replied, Call: call, Reply: core.Reply{Holder: "o:1.1", TTL: time.Second}})
			}
			k.judged(c.time(), b, replies)
			asks := 0
			for _, call := range k.outbox.todo {
				if call.Attempt == 2 {
					asks++
				}
			}
			if want := map[string]int{"one node": 3}[name]; asks != want {
				t.Errorf("%d cells are asked again, want %d", asks, want)
			}
		})
	}
}

// A client may read a reply after a suspend. The node's time in that reply is old, but its clock is
// right. Without a clock that counts suspends, a step of the wall clock does not matter either.
func TestASuspendUnderARequestIsNoWrongClock(t *testing.T) {
	for name, boot := range map[string]func() time.Duration{"with a boot clock": func() time.Duration { return 0 }, "without": nil} {
		t.Run(name, func(t *testing.T) {
			c := NewClient("test")
			defer c.Close()
			c.boot = boot
			asked, read := core.Time{}, core.Time{Mono: time.Second, Boot: 8 * time.Hour}
			clock := time.UnixMicro(c.ownTime(asked)).UnixMilli()
			c.readClock(nil, []wire.Reply{{Value: []any{int64(0), int64(0), int64(0), "", clock}}}, asked, read)
			if k := c.nodeClocks.Known(c.ownTime(read), 1); k.Clocks != 1 || k.Correction.Abs() > wire.SameClock {
				t.Errorf("%d clocks are known, and the client corrects its tickets by %v", k.Clocks, k.Correction)
			}
		})
	}
}
