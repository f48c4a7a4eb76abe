package engine

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// The last admitted caller of a local queue stands for all behind it.
func TestTheLastAdmittedCallerStandsForThoseBehind(t *testing.T) {
	var q LocalQueue[int]
	var all []*Place[int]
	admit := func() {
		t.Helper()
		for q.Admit() != nil {
		}
		for i, tn := range all {
			want := 1
			if last := i+1 == len(all) || !all[i+1].Admitted(); last {
				want = len(all) - i
			}
			if got := tn.Callers(); tn.Admitted() && got != want {
				t.Errorf("place %d of %d stands for %d callers, want %d", i, len(all), got, want)
			}
		}
	}
	for i := range 10 {
		tn := &Place[int]{Caller: i}
		q.Push(tn)
		all = append(all, tn)
		admit()
	}
	for _, i := range []int{5, 0, 1, 3, 0, 0, 0, 0, 0, 0} {
		all[0].Settle(1)
		all[i].Leave()
		all = append(all[:i], all[i+1:]...)
		admit()
	}
	if !q.Empty() {
		t.Error("the queue is not empty though all have left")
	}
}

// The clocks of the nodes are hours apart, and the client learns them one by one. Whatever it knows
// at an attempt, no call gets a sure ticket below that of an earlier call, or behind an unsure one.
func TestTicketsFollowTheOrderOfCalls(t *testing.T) {
	for _, ahead := range [][]int{{-1, -2, -3}, {3, 2, 1}, {-3, 2, 1}, {0, -2, -1}} {
		for first := range 4 { // the number of clocks that are known at an attempt
			for second := range 4 {
				for third := range 4 {
					ticketsInOrder(t, ahead, first, second, third)
				}
			}
		}
	}
}

func ticketsInOrder(t *testing.T, ahead []int, known ...int) {
	var clocks Clocks[int]
	var q LocalQueue[int]
	own := time.Now().UnixMicro()
	var places []*Place[int]
	for range 2 {
		tn := &Place[int]{Ticket: clocks.NewTicket(own)}
		q.Push(tn)
		tn.admitted = true
		places = append(places, tn)
	}
	learn := func(n int) {
		own += 2 * wire.FreshClock.Microseconds() // all are forgotten
		for i := range n {
			at := time.UnixMicro(own).Add(time.Duration(ahead[i]) * time.Hour)
			clocks.Read(i, at, own, own)
		}
	}
	ask := func(i int, attempt int32) (ticket int64, unsure bool) {
		ticket, unsure = TicketOf(places[i], places[i].Ticket, attempt, clocks.Known(own, 3))
		if !unsure {
			places[i].Settle(ticket)
		}
		return ticket, unsure
	}
	learn(known[0])
	_, unsure := ask(0, 1)
	learn(known[1])
	if _, behind := ask(1, 1); unsure && !behind {
		t.Errorf("clocks %v hours ahead, %v known: a sure ticket behind an unsure one", ahead, known)
	}
	learn(known[2])
	second, unsure2 := ask(1, 2)
	first, unsure1 := ask(0, 2)
	if !unsure1 && !unsure2 && first >= second {
		t.Errorf("clocks %v hours ahead, %v known: the ticket of the first call is %d µs above that of the second", ahead, known, first-second)
	}
}

// A caller that shares a lock is admitted immediately.
func TestSharersAreAdmittedAtOnce(t *testing.T) {
	var q LocalQueue[int]
	q.Shared = true
	for i := range 2 * maxAdmitted {
		p := &Place[int]{Caller: i}
		if q.Push(p); q.Admit() != p || q.Admit() != nil {
			t.Fatalf("caller %d is not admitted", i)
		}
	}
}
