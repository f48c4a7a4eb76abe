package engine

import (
	"slices"
	"testing"
	"time"
)

// draws returns a function that returns these numbers in turn, and then 0.
func draws(numbers ...int) func(int) int {
	return func(n int) int {
		if len(numbers) == 0 {
			return 0
		}
		d := min(numbers[0], n-1)
		numbers = numbers[1:]
		return d
	}
}

func TestReleasesLeaveTheLockToRedissonNowAndThen(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	var r Redisson[string, int]
	var all time.Duration
	cells, now := []string{"a", "b"}, 10*time.Second
	window := func(want int64, nodes, queued int, draw ...int) {
		t.Helper()
		if got := r.Window(now, cells, nodes, 8*ms, queued, draws(draw...)); got != want {
			t.Errorf("after %v: a window of %d ms, want %d", now, got, want)
		}
	}
	// Without known peers: after a few waits, a probe with the probability 8 ms / probeInterval.
	for range firstProbe {
		window(Ordinary, 1, 0)
	}
	window(Ordinary, 1, 0, 8000)
	window(-probeWindow.Milliseconds(), 1, 0, 7999)
	window(Ordinary, 1, 1, 4000) // two callers: half the interval
	window(-probeWindow.Milliseconds(), 1, 1, 3999)
	now += PeerMemory + 1
	window(Ordinary, 1, 0) // the waits were too long ago
	if got := r.Window(now, cells, 1, 0, 0, draws()); got != Ordinary {
		t.Errorf("a probe without contention: %d", got)
	}

	// A peer at one cell stands for all. One release in n is theirs, or more if they are behind.
	if r.Observed(now, cells, "a", &all, 100*ms) || r.Known() != 2 {
		t.Fatalf("%d cells with peers, want 2 that send messages", r.Known())
	}
	window(0, 1, 3, 4)
	window(2, 1, 3, 3)
	now += 9 * ms
	window(0, 1, 3, 0) // nobody came: a rest
	now += ms
	window(4, 1, 3, 0) // longer, since nobody came
	now += time.Second
	window(20, 5, 3, 0)
	a, b := r.At("a"), r.At("b")
	for range 3 {
		b.Heard(now, "000")
	}
	now += time.Second
	window(0, 1, 3, 7)
	window(20, 1, 3, 6)
	b.Heard(now, "00") // an abandoned attempt: no hold has ended
	now += time.Second
	window(0, 1, 3, 7)
	for range 4 {
		if !b.Heard(now, "0") {
			t.Error("a peer's release makes no waiter look")
		}
	}
	a.Heard(now, "0")
	if b.balance != 1 || a.balance != 1 {
		t.Errorf("balances of %d and %d, want 1", a.balance, b.balance)
	}
	window(0, 1, 0, 0) // they have had more
	if b.Heard(now, "00000000") || b.window != 5*ms || b.opened != now {
		t.Errorf("our window of 5 ms was recorded as %v", b.window)
	}

	// If an expiry moves without a message, the peers publish none.
	r.Observed(now, cells, "b", &all, 100*ms)
	if now += 30 * ms; !r.Observed(now, cells, "b", &all, 100*ms) {
		t.Error("a later expiry without a message was not noticed")
	}
	if b.balance != 1 || !b.counted {
		t.Errorf("a balance of %d after a hold that was observed, want 0 + 1", b.balance)
	}
	if b.Heard(now, "0"); b.balance != 1 || r.Observed(now, cells, "b", &all, 100*ms) {
		t.Error("the message of an observed hold counts again, or was not heard")
	}

	now += PeerMemory - ms
	if gone, next := r.Forget(now, false); len(gone) > 0 || next != ms {
		t.Errorf("%d cells forgotten, the next after %v", len(gone), next)
	}
	b.Heard(now, "0")
	now += ms
	if gone, next := r.Forget(now, false); len(gone) != 1 || next != PeerMemory-ms || r.At("b") == nil {
		t.Errorf("%d cells forgotten, the next after %v", len(gone), next)
	}
	if gone, _ := r.Forget(now, true); len(gone) != 1 || r.Known() != 0 {
		t.Errorf("%d cells forgotten at the end, %d left", len(gone), r.Known())
	}
}

func TestAWaiterTriesTheFirstCellOfRedisson(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	var r Redisson[string, int]
	var all time.Duration
	cells, now, me := []string{"a", "b", "c"}, time.Second, new(int)
	r.Observed(now, cells, "a", &all, 0)
	a, b := r.At("a"), r.At("b")
	trips := []time.Duration{ms, ms, ms}
	if alone, asks := a.Freed(now, me, false, draws(0, 0)); !alone || !asks {
		t.Error("a node without a counter is not asked for one")
	}
	if alone, asks := a.Freed(now, me, false, draws(0, 1)); !alone || asks {
		t.Error("a cell is not tried alone")
	}
	if alone, _ := a.Freed(now, me, true, draws(0, 1)); alone {
		t.Error("a waiter that has a cell begins again")
	}
	b.open(now, 2*ms)
	if alone, asks := b.Freed(now+ms, me, false, draws(0)); !alone || !asks {
		t.Error("in a window, the waiter does not ask all cells")
	}
	b.Freed(now+ms, new(int), true, draws())
	for n := range mostUseless + 2 {
		now += 3 * ms
		a.Freed(now, me, false, draws(0, 1))
		taken, tried := r.Handed(me, "a", cells, trips)
		if !slices.Equal(taken, []int{1}) || tried != a || a.useless != min(n+1, mostUseless) {
			t.Fatalf("handoff %d: %v are taken, want b; %d were useless", n, taken, a.useless)
		}
	}
	if alone, _ := a.Freed(now, me, false, draws(1)); alone {
		t.Error("a cell is tried each time, though its handoffs were useless")
	}
	if taken, tried := r.Handed(new(int), "b", cells, trips); tried != nil || len(taken) > 0 {
		t.Errorf("another waiter's handoff of b: %v are taken", taken)
	}
	a.Granted()
	if a.useless != 0 {
		t.Errorf("%d useless handoffs after a grant", a.useless)
	}
	if taken, tried := r.Handed(me, "d", cells, trips); taken != nil || tried != nil {
		t.Error("a cell without peers was tried")
	}
	for position, want := range []time.Duration{0, 0, 20 * ms, 30 * ms} {
		var f Foremost[string]
		f.Add("second", 8, position+1)
		f.Add("first", 7, position+2) // its position is older
		f.Add("third", 9, position)
		if f.Waiter != "first" {
			t.Errorf("the %s waiter looks", f.Waiter)
		}
		if got := f.LooksAfter(); got != want {
			t.Errorf("the waiter at %d looks after %v, want %v", position, got, want)
		}
	}
	far := Foremost[string]{nearest: 1000}
	if got := far.LooksAfter(); got != maxLookDelay {
		t.Errorf("a waiter far behind looks after %v", got)
	}
}
