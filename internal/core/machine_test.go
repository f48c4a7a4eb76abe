package core

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

// driver feeds a machine with any event, sensible or not.
type driver struct {
	t     *testing.T
	rng   *rand.Rand
	m     *Machine
	now   Time
	calls []Call // not answered

	outcome  Outcome
	unlocked bool
	released bool
	lost     bool
	extends  map[int32]bool // undecided rounds
	moves    map[string]bool
}

func (d *driver) step(e Event) {
	d.t.Helper()
	from, round := d.m.Phase(), d.m.LastRound()
	fx := d.m.Step(d.now, e)
	for i, f := range d.m.tallies().cells { // no change was missed
		if want := d.m.factsOf(i); f != want {
			d.t.Fatalf("after event %d in phase %s, the facts of cell %d are %b, want %b", e.Kind, from, i, f, want)
		}
	}
	if d.m.counted != d.m.changed {
		d.t.Fatalf("after event %d in phase %s, each question counts all cells", e.Kind, from)
	}
	d.compare(e)
	if fx.Bug != "" {
		d.t.Fatalf("after event %d in phase %s: %s", e.Kind, from, fx.Bug)
	}
	if to := d.m.Phase(); to != from {
		d.moves[from.String()+" -> "+to.String()] = true
	}
	for id := round + 1; id <= d.m.LastRound(); id++ {
		d.extends[id] = true
	}
	for _, r := range fx.Rounds {
		if !d.extends[r.ID] {
			d.t.Fatalf("round %d is decided, though it is not under way", r.ID)
		}
		delete(d.extends, r.ID)
	}
	if fx.Outcome != Undecided {
		if d.outcome != Undecided {
			d.t.Fatalf("outcome %d after %d", fx.Outcome, d.outcome)
		}
		d.outcome = fx.Outcome
	}
	if fx.Lost != NoReason {
		if d.lost || d.outcome != Acquired || d.released {
			d.t.Fatal("a loss of what is not held")
		}
		d.lost = true
	}
	if fx.Released {
		if d.released || !d.unlocked {
			d.t.Fatal("released, though nobody has unlocked")
		}
		d.released = true
	}
	for _, c := range fx.Calls {
		if c.Cell < 0 || int(c.Cell) >= len(d.m.Cells) || c.Do < Acquire || c.Do > Return || c.Attempt < 1 {
			d.t.Fatalf("an impossible call: %+v", c)
		}
		d.calls = append(d.calls, c)
	}
	if d.m.Phase() == Holding && d.m.Remaining(d.now) <= 0 && e.Kind != Start {
		d.t.Fatal("a hold after its validity")
	}
}

// compare fails if the step has missed a comparison of slots.
func (d *driver) compare(e Event) {
	cells, slots := slices.Clone(d.m.Cells), slices.Clone(d.m.slots)
	for i := range slots {
		switch waits := d.m.phase == Yielding || d.m.phase == Waiting; {
		case d.m.phase == Asking:
			d.m.majoritySlot(i, slotHanded)
			d.m.majoritySlot(i, slotGranted)
		case waits && d.m.compared == slotHanded:
			d.m.majoritySlot(i, slotHanded)
		}
	}
	if !slices.Equal(slots, d.m.slots) || !slices.Equal(cells, d.m.Cells) {
		d.t.Fatalf("after event %d in phase %s, slots %v, want %v, or other marks", e.Kind, d.m.phase, slots, d.m.slots)
	}
}

// answer answers one call, mostly the first of its cell.
func (d *driver) answer(well bool) {
	i := d.rng.IntN(len(d.calls))
	if d.rng.IntN(8) > 0 {
		for j := range i {
			if d.calls[j].Cell == d.calls[i].Cell {
				i = j
				break
			}
		}
	}
	c := d.calls[i]
	d.calls = slices.Delete(d.calls, i, i+1)
	d.step(Event{Kind: Replied, Call: c, Reply: d.reply(c, well)})
}

func (d *driver) reply(c Call, well bool) Reply {
	r := Reply{OK: d.rng.IntN(3) > 0 || well, Token: uint64(1 + d.rng.IntN(3)), First: d.rng.IntN(2) == 0, Left: time.Duration(d.rng.IntN(20)) * time.Second, Slot: d.slot()}
	if well {
		return r
	}
	r.Again, r.Rival = d.rng.IntN(9) == 0, d.rng.IntN(3) == 0
	switch d.rng.IntN(10) {
	case 0:
		return lost
	case 1:
		return unsent
	case 2:
		return Reply{Err: errNoAnswer, WrongUse: true}
	case 3:
		return Reply{Err: errNoAnswer, Quarantined: true}
	}
	if !r.OK {
		r.Holder = quorumlock.Owner(fmt.Sprint("c:", d.rng.IntN(3)))
		r.Free, r.Ours, r.Ended = d.rng.IntN(3) == 0, d.rng.IntN(9) == 0, d.rng.IntN(9) == 0
		r.Elsewhere = d.m.cfg.Slots != nil && d.rng.IntN(3) == 0
		r.TTL, r.Position = time.Duration(d.rng.IntN(1000))*time.Millisecond, d.rng.IntN(40)
	}
	return r
}

// slot returns a slot, most often 0.
func (d *driver) slot() int32 {
	if d.m.cfg.Slots == nil {
		return 0
	}
	return int32(max(d.rng.IntN(5)-2, 0))
}

func (d *driver) pass(max time.Duration) {
	by := time.Duration(d.rng.Int64N(int64(max)))
	d.now = d.now.Add(by)
	if d.rng.IntN(20) == 0 {
		d.now.Boot += time.Duration(d.rng.Int64N(int64(2*max))) - max
	}
}

// any plays a random event.
func (d *driver) any() {
	d.pass(40 * time.Millisecond)
	cell := int32(d.rng.IntN(len(d.m.Cells)))
	switch n := d.rng.IntN(100); {
	case n < 55 && len(d.calls) > 0:
		d.answer(false)
	case n < 65:
		d.step(Event{Kind: Turn, Cell: cell})
	case n < 75:
		e := handed(cell, max(d.m.attempt-int32(d.rng.IntN(2)), 1), uint64(1+d.rng.IntN(3)))
		e.Slot = d.slot()
		d.step(e)
	case n < 78:
		d.step(Event{Kind: Next})
	case n < 90:
		if at := d.m.Wake(); at > d.now.Mono && d.rng.IntN(2) == 0 {
			d.now = d.now.Add(at - d.now.Mono)
		}
		d.step(Event{Kind: Tick})
	case n < 94:
		d.step(extend)
	case n < 96 && d.outcome == Acquired && !d.unlocked:
		d.unlocked = true
		kind := []EventKind{Unlock, Unlock, Detach}[d.rng.IntN(3)]
		if d.m.cfg.Source != nil && d.rng.IntN(2) == 0 {
			kind = GiveBack
		}
		d.step(Event{Kind: kind, Keep: time.Duration(d.rng.IntN(2)) * time.Second})
	case n == 96:
		d.step(cancel)
	case n == 97 && d.rng.IntN(4) == 0:
		d.step(Event{Kind: Close})
	}
}

// end cancels, unlocks and answers everything. Then nothing may be left.
func (d *driver) end() {
	d.step(cancel)
	if d.outcome == Acquired && !d.unlocked {
		d.unlocked = true
		d.step(unlock)
	}
	for n := 0; len(d.calls) > 0; n++ {
		if n == 10000 {
			d.t.Fatal("it never ends")
		}
		d.answer(true)
	}
	switch {
	case d.m.Phase() != Over:
		d.t.Fatalf("it ends in phase %s", d.m.Phase())
	case d.outcome == Undecided:
		d.t.Fatal("no outcome")
	case d.outcome == Acquired && !d.released:
		d.t.Fatal("Unlock has no outcome")
	case len(d.extends) > 0:
		d.t.Fatalf("renewals %v are not decided", d.extends)
	case d.m.Wake() != 0:
		d.t.Fatal("it wants to be woken")
	}
}

// semaphoresOf returns a semaphore of three slots for each member of a tree of Majority(2, 3) and
// single cells, or one for all of any other tree.
func semaphoresOf(t Tree) (all []Slots) {
	if t.inner == nil {
		return []Slots{{0, t.Cells(), 3}}
	}
	for i := 0; i < t.Cells(); {
		n := 1
		if t.groupOf(i) != atRoot {
			n = 3
		}
		all = append(all, Slots{i, n, 3})
		i += n
	}
	return all
}

// After any events in any order, a machine has one outcome, decides each renewal and each Unlock
// once, and holds nothing past its validity. It ends when every call is answered. Its phases follow
// each other exactly as in phase.go.
func TestWhateverHappensAMachineEnds(t *testing.T) {
	trees := []Tree{{}, Majority(2, 3), Majority(3, 5), Majority(3, 3), Every([]Tree{Majority(2, 3), {}}), Every([]Tree{Majority(2, 3), {}, Majority(2, 3)})}
	moves := make(map[string]bool)
	for seed := range uint64(20000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := config(trees[rng.IntN(len(trees))])
		c.TTL, c.HandTTL, c.NodeTimeout = time.Second, time.Second, 50*time.Millisecond
		if c.Renew, c.Tries = rng.IntN(4) > 0, rng.IntN(4) == 0; !c.Renew || c.Tries {
			c.HandTTL = 0
		}
		if rng.IntN(8) == 0 {
			c.MaxHold = 500 * time.Millisecond
		}
		if c.Tree.inner == nil && rng.IntN(6) == 0 {
			c.Source = &Source{Token: 3, Counts: make([]uint64, c.Tree.Cells())}
		}
		if c.Source == nil && rng.IntN(2) == 0 {
			c.Slots = semaphoresOf(c.Tree)
		}
		d := &driver{t: t, rng: rng, m: New(c, millisecond, seed), extends: make(map[int32]bool), moves: moves}
		d.step(Event{Kind: Start})
		for range 30 + rng.IntN(150) {
			d.any()
		}
		d.end()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	table := make(map[string]bool)
	for from, after := range follow {
		for _, to := range after {
			table[Phase(from).String()+" -> "+to.String()] = true
		}
	}
	if seen, want := slices.Sorted(maps.Keys(moves)), slices.Sorted(maps.Keys(table)); !slices.Equal(seen, want) {
		t.Errorf("the steps were\n%s\nand the table has\n%s", strings.Join(seen, "\n"), strings.Join(want, "\n"))
	}
}

func TestTheDocsHaveTheTableOfPhases(t *testing.T) {
	doc, err := os.ReadFile("../../docs/design/attempts.md")
	if err != nil {
		t.Fatal(err)
	}
	for from, after := range follow {
		row := fmt.Sprintf("| %v | %v |\n", Phase(from), strings.ReplaceAll(strings.Trim(fmt.Sprint(after), "[]"), " ", ", "))
		if len(after) > 0 && !strings.Contains(string(doc), row) {
			t.Errorf("docs/design/attempts.md lacks the row %s", row)
		}
	}
}
