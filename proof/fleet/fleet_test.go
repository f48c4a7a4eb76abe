package fleet

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

const (
	epoch scriptmodel.Time = 1_790_000_000_123_457
	ttl                    = 2 * time.Second
)

// talker sends numbered calls, and records the order of their replies.
type talker struct {
	calls   int
	replied []int
	failed  []error
	told    []Event
	woke    []Clock
	asks    func(to *Effects)
}

func (c *talker) Step(now Clock, e Event, to *Effects) {
	switch e.Kind {
	case Started:
		if c.asks != nil {
			c.asks(to)
		}
		for i := range c.calls {
			to.Send(0, 0, i, new(wire.Inspect("x", 1)))
		}
	case Woke:
		c.woke = append(c.woke, now)
	case Replied:
		c.replied = append(c.replied, e.Call)
		if e.Reply.Err != nil {
			c.failed = append(c.failed, e.Reply.Err)
		}
	default:
		c.told = append(c.told, e)
	}
}

func talk(c Config, clients ...*talker) *World {
	c.Nodes = []Computer{{Wall: epoch}}
	var all []Client
	for _, t := range clients {
		c.Clients = append(c.Clients, Computer{Wall: epoch})
		all = append(all, t)
	}
	if c.Network.MaxDelay == 0 {
		c.Network.MinDelay, c.Network.MaxDelay = time.Millisecond, 2*time.Millisecond
	}
	return New(c, all)
}

func TestCallsOfOneConnectionStayInOrder(t *testing.T) {
	slow := Network{MinDelay: time.Millisecond, MaxDelay: 50 * time.Millisecond, Slow: 0.2, MaxSlow: time.Second}
	for _, kind := range []FaultKind{Freeze, Stall, Pause} {
		c := &talker{calls: 100}
		talk(Config{Seed: 1, Network: slow, Faults: []Fault{{Kind: kind, At: 20 * time.Millisecond, For: time.Second}}}, c).Run(time.Minute)
		if len(c.replied) != 100 || !slices.IsSorted(c.replied) {
			t.Errorf("fault %d: the replies are to %v", kind, c.replied)
		}
	}
}

func TestAFrozenNodeTakesNoNewConnection(t *testing.T) {
	var before, after bool
	c := &talker{}
	w := talk(Config{Faults: []Fault{{Kind: Freeze, For: time.Second}}}, c)
	w.Run(500 * time.Millisecond)
	w.Call(0, func(_ Clock, to *Effects) { before = to.Connects(0, 0) })
	w.Run(2 * time.Second)
	w.Call(0, func(_ Clock, to *Effects) { after = to.Connects(0, 0) })
	if want := []Event{{Kind: Connected}}; before || !after || !slices.Equal(c.told, want) {
		t.Errorf("before %v, after %v, told %+v", before, after, c.told)
	}
}

// At the thaw, the requests of a closed connection run before or after those of a new one.
func TestAThawedNodeRunsWhatIsOnClosedConnections(t *testing.T) {
	orders := make(map[string]bool)
	for seed := range uint64(50) {
		c := &talker{calls: 1}
		w := talk(Config{Seed: seed, Faults: []Fault{{Kind: Freeze, For: time.Second}}}, c)
		order := ""
		w.Ran = func(_, _, number int, _ *wire.Call, _ wire.Reply) { order += string(rune('0' + number)) }
		w.Run(900 * time.Millisecond)
		w.Call(0, func(_ Clock, to *Effects) { to.Reconnect(0, 0) })
		w.Run(1010 * time.Millisecond)
		w.send(0, 0, 0, 1, new(wire.Inspect("x", 1)), false)
		w.Run(time.Minute)
		orders[order] = true
	}
	if !orders["01"] || !orders["10"] || len(orders) != 2 {
		t.Errorf("the calls ran in the orders %v", orders)
	}
}

func TestACrashEndsWhatIsUnderWay(t *testing.T) {
	c := &talker{calls: 2}
	w := talk(Config{Faults: []Fault{{Kind: Crash, For: time.Second}}}, c)
	w.Run(time.Second / 2)
	w.send(0, 0, 0, 2, new(wire.Inspect("x", 1)), false)
	w.Run(time.Minute)
	if want := []error{ErrBroken, ErrBroken, ErrRefused}; !slices.Equal(c.failed, want) {
		t.Errorf("%v, want %v", c.failed, want)
	}
}

func TestWhatIsCutOffIsNeverTold(t *testing.T) {
	for _, kind := range []FaultKind{Cut, CutThere, CutBack} {
		ran := 0
		c := &talker{calls: 3}
		w := talk(Config{Faults: []Fault{{Kind: kind, Client: -1, Node: -1, For: time.Second}}}, c)
		w.Ran = func(int, int, int, *wire.Call, wire.Reply) { ran++ }
		w.Run(time.Minute)
		if len(c.replied) > 0 || (ran == 3) != (kind == CutBack) {
			t.Errorf("fault %d: %d ran, and replies came to %v", kind, ran, c.replied)
		}
	}
}

func TestMessagesReachSubscribersUntilTheNodeEnds(t *testing.T) {
	channel := wire.UnlockChannel("x")
	ear := &talker{asks: func(to *Effects) { to.Subscribe(0, channel) }}
	w := talk(Config{Faults: []Fault{{Kind: CrashLoss, At: time.Second, For: time.Second}}}, ear)
	w.Run(500 * time.Millisecond)
	run := func(c wire.Call) {
		w.send(0, 0, 0, 7, &c, false)
		w.Run(w.Now() + 100*time.Millisecond)
	}
	run(wire.Acquire("x", "a:1", ttl, 1, 1))
	run(wire.Release("x", "a:1", 1))
	w.Run(3 * time.Second)
	want := []Event{{Kind: Subscribed, Channel: channel}, {Kind: Told, Channel: channel, Text: "00"}, {Kind: Unsubscribed}}
	if !slices.EqualFunc(ear.told, want, func(a, b Event) bool { return a.Kind == b.Kind && a.Channel == b.Channel && a.Text == b.Text }) {
		t.Errorf("%+v", ear.told)
	}
}

func TestWhatANodeKeeps(t *testing.T) {
	for kind, want := range map[FaultKind]struct{ held, quarantined bool }{
		Crash: {true, true}, Failover: {true, true}, CrashLoss: {false, true},
		Forget: {false, false}, Evict: {false, false}, Freeze: {true, false}, Step: {false, false},
	} {
		c := &talker{asks: func(to *Effects) { to.Send(0, 0, 0, new(wire.Acquire("x", "a:1", time.Hour, 1, 1))) }}
		w := talk(Config{Faults: []Fault{{Kind: kind, At: time.Second, For: time.Second, Key: "x", By: 2 * time.Hour}}}, c)
		w.Run(3 * time.Second)
		n, now := w.Node(0)
		_, held := n.Peek(now, "x")
		var sight wire.Sight // of a client that met the server long ago
		sight.Saw(&wire.Reply{Value: []any{int64(3), int64(1), int64(0), "1:1"}}, time.Now())
		call := wire.Acquire("y", "b:1", time.Second, 1, 1).Guarded(time.Minute)
		sight.Vouch(&call, time.Now().Add(time.Hour))
		reply, _ := n.Run(now, call)
		_, err := reply.Acquired()
		if held != want.held || errors.Is(err, quorumlock.ErrQuarantined) != want.quarantined {
			t.Errorf("fault %d: held %v, %v, want %v", kind, held, err, want)
		}
	}
}

func TestAPausedClientSeesWhatCameMeanwhile(t *testing.T) {
	c := &talker{asks: func(to *Effects) { to.Wake(time.Second); to.Send(0, 0, 0, new(wire.Inspect("x", 1))) }}
	w := talk(Config{Faults: []Fault{{Kind: Pause, At: time.Microsecond, For: 5 * time.Second}}}, c)
	if w.Run(4 * time.Second); len(c.woke)+len(c.replied) > 0 {
		t.Error("it works while it is paused")
	}
	if w.Run(6 * time.Second); len(c.woke) != 1 || c.woke[0].Mono != 5*time.Second+time.Microsecond || len(c.replied) != 1 {
		t.Errorf("woke at %v, replies to %v", c.woke, c.replied)
	}
}

func TestASubscriptionThatCannotBeMadeIsTold(t *testing.T) {
	c := &talker{asks: func(to *Effects) { to.Subscribe(0, "c") }}
	w := talk(Config{Faults: []Fault{{Kind: Freeze, For: time.Second}}}, c)
	if w.Run(time.Minute); len(c.told) != 1 || c.told[0].Kind != Unsubscribed {
		t.Errorf("%+v", c.told)
	}
}

func TestClocksRunAtTheirRates(t *testing.T) {
	c := &talker{asks: func(to *Effects) { to.Wake(time.Second) }}
	w := New(Config{Nodes: []Computer{{Wall: epoch, Rate: 2}}, Clients: []Computer{{Wall: epoch, Rate: 0.5}},
		Faults: []Fault{{Kind: StepWall, At: time.Second, By: time.Hour}, {Kind: Step, At: time.Second, By: -time.Hour}}}, []Client{c})
	w.Run(2 * time.Second)
	if want := (Clock{time.Second, time.Second, epoch.Add(time.Second + time.Hour)}); len(c.woke) != 1 || c.woke[0] != want {
		t.Errorf("woke at %v, want %v", c.woke, want)
	}
	if _, now := w.Node(0); now != epoch.Add(4*time.Second-time.Hour) {
		t.Errorf("the node's clock shows %v", now)
	}
}
