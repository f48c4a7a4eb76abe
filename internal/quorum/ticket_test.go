package quorum

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/locktest/wallclock"
	"github.com/quorumlock/quorumlock/internal/options"
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

// The clocks of the nodes are hours apart, and the client learns them one by one. Whatever it knows
// at an attempt, no call gets a sure ticket below that of an earlier call, or behind an unsure one.
func TestTicketsFollowTheOrderOfCalls(t *testing.T) {
	hours := [][]int{{-1, -2, -3}, {3, 2, 1}, {-3, 2, 1}, {0, -2, -1}}
	for _, ahead := range hours {
		for first := range 4 { // the number of clocks that are known at an attempt
			for second := range 4 {
				for third := range 4 {
					ticketsInOrder(t, ahead, first, second, third)
				}
			}
		}
	}
}

// bareNode is a node that is only distinct from others.
type bareNode struct {
	Node
	number int
}

func ticketsInOrder(t *testing.T, ahead []int, known ...int) {
	c := NewClient("test")
	defer c.Close()
	l := lockOf(c, "", "x")
	l.nodes = []Node{bareNode{number: 1}, bareNode{number: 2}, bareNode{number: 3}}
	q := c.localQueueOf(l)
	var calls []*call
	for range 2 {
		tn := &turn{queue: q, ticket: c.nextTicket(), come: make(chan struct{}), admitted: true}
		tn.place = q.turns.PushBack(tn)
		calls = append(calls, l.newCall(&l.lock, tn.ticket, tn, nil))
	}
	learn := func(n int) {
		clear(c.ahead)
		for i := range n {
			c.ahead[l.nodes[i]] = time.Duration(ahead[i]) * time.Hour
		}
		c.clockReadAt = c.ownTime(c.time())
		if n > 0 {
			c.correction = wire.Correction(c.correction, slices.Collect(maps.Values(c.ahead)))
		}
	}
	ask := func(k *call, attempt int32) {
		k.setTicket(attempt)
		if !k.unsure {
			k.settle(k.ticket)
		}
	}
	learn(known[0])
	ask(calls[0], 1)
	learn(known[1])
	ask(calls[1], 1)
	if calls[0].unsure && !calls[1].unsure {
		t.Errorf("clocks %v hours ahead, %v known: a sure ticket behind an unsure one", ahead, known)
	}
	learn(known[2])
	ask(calls[1], 2)
	ask(calls[0], 2)
	if a, b := calls[0], calls[1]; !a.unsure && !b.unsure && a.ticket >= b.ticket {
		t.Errorf("clocks %v hours ahead, %v known: the ticket of the first call is %d µs above that of the second", ahead, known, a.ticket-b.ticket)
	}
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
				cells[i] = Cell{Node: bareNode{number: i}, Name: "x"}
			}
			l := New(c, "x", core.Majority(3, 3), cells, options.Settings{TTL: time.Second, NodeTimeout: time.Second}, nil)
			k := l.newCall(&l.lock, c.nextTicket(), nil, nil)
			k.machine.Step(c.time(), core.Event{Kind: core.Start})
			b := &request{entry: wire.Entry{Ticket: k.caller.Ticket, Unsure: true}}
			var replies []wire.Reply
			for i := range cells {
				call := core.Call{Do: core.Acquire, Cell: int32(i), Attempt: 1}
				b.calls = append(b.calls, call)
				replies = append(replies, wire.Reply{Value: []any{int64(0), int64(1000), int64(0), "o:1.1", time.UnixMicro(k.caller.Ticket).Add(ahead[i]).UnixMilli()}})
				k.machine.Step(c.time(), core.Event{Kind: core.Replied, Call: call, Reply: core.Reply{Holder: "o:1.1", TTL: time.Second}})
			}
			k.judged(c.time(), b, replies)
			asks := 0
			for _, call := range k.todo {
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
