package scriptmodel_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// generator makes up the commands of one sequence, one after another. It looks at the state of the
// model, and often chooses values close to a border: a holder, the first waiter, the ms of an end.
type generator struct {
	*rand.Rand
	model   *model
	now     scriptmodel.Time
	names   []string
	name    string           // of the lock of the next command
	wild    float64          // share of events that no client of this library causes
	stamp   int              // of histories
	crowds  bool             // some queues are long
	shares  float64          // share of calls that share the lock
	slots   float64          // share of calls on a semaphore
	latches float64          // share of calls on a latch
	opens   int              // how many ids open it
	follow  func() wire.Call // the likely next call
	set     setting
}

// epoch is not round: see unround.
const epoch scriptmodel.Time = 1_790_000_000_123_457

// unround returns a time, or one close to it: some servers show a score with eight zeros as
// 1.79e+15, others in digits. Scripts make scores of ms.
func unround(t scriptmodel.Time) scriptmodel.Time {
	if t/1000%1e5 == 0 {
		t += 1000
	}
	return t
}

func newGenerator(seed uint64, m *model) *generator {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x5eed)), model: m}
	g.now = epoch + scriptmodel.Time(g.Int64N(1e7))
	g.names = [][]string{{"x"}, {"x"}, {"x", "y"}, {"{t}:x"}, {"a{b", "a}b"}, {"x", "{x}"}}[g.IntN(6)]
	g.wild = []float64{0, 0.02, 0.2, 0.3}[g.IntN(4)]
	g.crowds = g.chance(0.03)
	g.shares = []float64{0, 0.5, 0.9}[g.IntN(3)]
	g.slots = []float64{0, 0, 0.5, 0.99, 0.99}[g.IntN(5)]
	g.set.info = scriptmodel.Info{Run: firstRun, History: "ab1", Former: scriptmodel.NoHistory}
	if m.fixed != nil {
		g.set.info = *m.fixed
	}
	g.mostlyLatches(seed)
	return g
}

func (g *generator) chance(p float64) bool { return g.Float64() < p }

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

// first is the command that every sequence begins with.
func (g *generator) first() command {
	set := g.set
	return command{at: g.now, does: fmt.Sprintf("the server is %+v", set), set: &set}
}

// next is the next command. The model has played all commands before.
func (g *generator) next() command {
	g.name = g.names[g.IntN(len(g.names))]
	g.pass()
	var c command
	switch {
	case g.chance(0.04):
		c = g.happening()
	case g.chance(g.wild):
		c = g.mischief()
	default:
		call := g.call()
		if g.follow != nil && g.chance(0.6) {
			call = g.follow()
		}
		g.follow = nil
		c = command{call: &call}
	}
	c.at = g.now
	return c
}

// pass lets time pass, or steps the clock.
func (g *generator) pass() {
	switch p := g.Float64(); {
	case p < 0.30: // not at all
	case p < 0.50:
		g.now += scriptmodel.Time(g.Int64N(3000))
	case p < 0.60:
		g.now += scriptmodel.Time(g.Int64N(700e3))
	case p < 0.97:
		if borders := g.borders(); len(borders) > 0 {
			to := pick(g, borders...)*1000 + pick[int64](g, -1000, 0, 0, 0, 1000, 999, -1)
			far := to - int64(g.now)
			if 0 < far && far < 1e12 || -1e11 < far && far < 0 && g.chance(0.02) {
				g.now = scriptmodel.Time(to)
			}
		}
	case p < 0.98:
		g.now += scriptmodel.Time(g.Int64N(100e6))
	default:
		step := pick[scriptmodel.Time](g, 1e3, 1e5, 1e6, 1e8, 3600e6, 2*86400e6)
		g.now += scriptmodel.Time(g.Int64N(2*int64(step))) - step
	}
	g.now = unround(g.now)
	g.model.now = g.now
}

// borders are the times, in ms, at which something ends.
func (g *generator) borders() (at []int64) {
	for _, key := range g.keys() {
		if v, ok := g.peek(key); ok && v.Expires != 0 {
			at = append(at, v.Expires)
		}
	}
	lock, _ := g.peek(g.name)
	for _, f := range lock.Fields {
		if until, err := strconv.ParseInt(f.Value, 10, 64); err == nil && until > 1e12 {
			at = append(at, until, until+1)
		}
	}
	for _, m := range lock.Members {
		if m.Score < 1e15 {
			at = append(at, int64(m.Score), int64(m.Score)+1)
		}
	}
	entries, _ := g.peek(wire.EntriesKey(g.name))
	for i, f := range entries.Fields {
		if i == 5 {
			break
		}
		words := strings.Fields(f.Value)
		if len(words) < 2 {
			continue
		}
		ends, _, _ := strings.Cut(words[0], ",")
		deadline, err := strconv.ParseInt(ends, 10, 64)
		if err != nil {
			continue
		}
		at = append(at, deadline, deadline-1000, deadline-350, deadline-2500)
		if len(words) == 7 {
			came, err1 := strconv.ParseInt(words[2], 10, 64)
			ttl, err2 := strconv.ParseInt(words[3], 10, 64)
			if err1 == nil && err2 == nil {
				at = append(at, came+650, came+ttl/2, came)
			}
		}
	}
	return at
}

func (g *generator) keys() []string {
	if g.latches > 0 && g.chance(0.9) {
		return []string{g.name, wire.LatchKey(g.name)}
	}
	return []string{g.name, wire.QueueKey(g.name), wire.EntriesKey(g.name), wire.TokenKey(g.name), wire.SlotsKey(g.name)}
}

func (g *generator) peek(key string) (scriptmodel.Value, bool) {
	return g.model.node.Peek(g.now, key)
}

// owner is the holder, more often than not.
func (g *generator) owner() quorumlock.Owner {
	if v, ok := g.peek(g.name); ok && len(v.Fields) > 0 && g.chance(0.6) {
		if name := v.Fields[g.IntN(len(v.Fields))].Name; name != "mode" {
			return quorumlock.Owner(name)
		}
	}
	switch g.IntN(4) {
	case 0:
		return quorumlock.Owner(fmt.Sprintf("8743c9c0-0795-4907-87fd-6c719a6b4586:%d", g.IntN(2)))
	case 1:
		return wire.OfCell(wire.SuccessorOf(g.waiter(), 1+g.IntN(4)), g.IntN(3))
	default:
		return wire.OfCell(quorumlock.Owner(fmt.Sprintf("c%d:%d", g.IntN(2), g.IntN(3))), g.IntN(2))
	}
}

// waiter is one of the first in the queue, more often than not.
func (g *generator) waiter() quorumlock.Owner {
	if v, ok := g.peek(wire.QueueKey(g.name)); ok && len(v.Members) > 0 {
		switch p := g.Float64(); {
		case p < 0.25:
			return quorumlock.Owner(v.Members[0].Name)
		case p < 0.55:
			return quorumlock.Owner(v.Members[g.IntN(len(v.Members))].Name)
		case p < 0.6:
			return quorumlock.Owner(v.Members[len(v.Members)-1].Name)
		}
	}
	if v, ok := g.peek(g.name); ok && len(v.Fields) > 0 && g.chance(0.4) {
		waiter, _, _ := strings.Cut(v.Fields[0].Name, "/")
		return quorumlock.Owner(waiter)
	}
	if g.chance(g.wild / 4) {
		return pick[quorumlock.Owner](g, "nobody", "a:b:1", ":1")
	}
	return quorumlock.Owner(fmt.Sprintf("c%d:%d", g.IntN(3), g.IntN(12)))
}

func (g *generator) ttl() time.Duration {
	if g.chance(0.01) {
		return pick(g, 0, 0, -25*time.Hour)
	}
	return time.Duration(pick(g, 1, 2, 10, 100, 500, 1000, 1800, 10_000, 30_000, 30_000, 200_000, 1_000_000, 3_600_000, 3_600_001)) * time.Millisecond
}

func (g *generator) entry() wire.Entry {
	e := wire.Entry{Waiter: g.waiter(), Callers: g.IntN(4), Several: g.chance(0.3), Passable: g.chance(0.2)}
	e.Ticket = int64(epoch) + g.Int64N(10)
	if g.chance(0.1) {
		e.Ticket = int64(g.now) - g.Int64N(5)
	}
	if e.Unsure = g.chance(0.2); e.Unsure && g.chance(0.7) {
		e.Ticket = int64(unround(g.now/1000*1000 + pick[scriptmodel.Time](g, -2e6, -1e6-1, -1e6, 0, 1e6, 1e6+1, 2e6)))
	}
	e.TTL = time.Duration(pick(g, 1, 20, 300, 349, 350, 351, 600, 900, 1000, 1001, 1001, 2000, 2500, 2501, 2501, 3500, 5000, 5000, 100_000)) * time.Millisecond
	if _, ok := g.peek(wire.EntriesKey(g.name)); g.chance(0.01) || !ok && g.chance(g.wild/4) {
		e.TTL = 0
	}
	if g.chance(0.7) {
		ttl := time.Duration(pick(g, 1, 2, 3, 100, 1000, 1299, 1300, 1301, 1800, 1800, 1800, 3_600_000, 3_600_001)) * time.Millisecond
		e.Successor = wire.Successor{Attempt: pick(g, 1, 1, 2, 3, 4, 10), TTL: ttl, Cell: g.IntN(3), Secret: pick(g, "s1", "7sm", "7t")}
	}
	return e
}

// hint is close to the node's clock, close to a minute from it, close to a border of a minute of the
// counter, or any number.
func (g *generator) hint() uint64 {
	switch p := g.Float64(); {
	case p < 0.4:
		return uint64(int64(g.now) + g.Int64N(20e3) - 10e3)
	case p < 0.5:
		return uint64(int64(g.now) + pick[int64](g, -1, 1)*60e6 + g.Int64N(3) - 1)
	case p < 0.65:
		const minute = 60e6
		from := g.counter()
		return max(from-from%minute+pick[uint64](g, 0, 2e6, minute)+g.Uint64N(3), 1) - 1
	case p < 0.8:
		return g.counter() + g.Uint64N(3) - 1
	case p < 0.85:
		return 1<<53 - 2 + g.Uint64N(5)
	default:
		return g.Uint64N(200)
	}
}

// counter is the token counter, 1 if it is none or below.
func (g *generator) counter() uint64 {
	v, _ := g.peek(wire.TokenKey(g.name))
	n, err := strconv.ParseUint(v.Text, 10, 64)
	if err != nil {
		return 1
	}
	return max(n, 1)
}

// hold is a count close to that of an owner.
func (g *generator) hold(owner quorumlock.Owner) int {
	v, _ := g.peek(g.name)
	i := slices.IndexFunc(v.Fields, func(f scriptmodel.Field) bool { return f.Name == string(owner) })
	if i < 0 || g.chance(0.05) {
		return pick(g, 1, 1, 1, 2)
	}
	n, _ := strconv.Atoi(v.Fields[i].Value)
	return max(1, min(n, 1<<40)+pick(g, -1, 0, 0, 0, 1, 1, 2))
}

// call is the call of a script.
func (g *generator) call() wire.Call {
	if g.latches > 0 && g.chance(g.latches) {
		return g.latched()
	}
	owner := g.owner()
	if g.chance(g.slots) {
		return g.slotted(owner)
	}
	if g.chance(g.shares) {
		return g.shared(owner)
	}
	switch p := g.Float64(); {
	case p < 0.14:
		c := wire.Acquire(g.name, owner, g.ttl(), g.hold(owner), g.hint())
		return g.guarded(c)
	case p < 0.42:
		return g.broken(g.guarded(wire.AcquireInTurn(g.name, owner, g.ttl(), g.hint(), g.entry())), 3)
	case p < 0.45:
		return g.guarded(wire.Restore(g.name, owner, g.ttl(), g.hint()))
	case p < 0.50:
		own := g.counter()
		if g.chance(0.2) {
			own += g.Uint64N(3) - 1
		}
		return wire.Raise(g.name, owner, g.ttl(), own, own+g.Uint64N(3)*pick[uint64](g, 1, 1000, 1e9, 1e13))
	case p < 0.54:
		return wire.Renew(g.name, owner, g.ttl())
	case p < 0.61:
		return g.passed(owner, g.ttl())
	case p < 0.67:
		c := wire.Release(g.name, owner, g.hold(owner))
		if g.chance(0.3) {
			c = c.Lends()
		}
		return c
	case p < 0.69:
		return wire.Release(g.name, owner, 1).Open(g.window(), g.waiter())
	case p < 0.72:
		return wire.ReleaseAndLeave(g.name, owner, g.waiter(), g.chance(0.5)).Open(g.window(), g.waiter())
	case p < 0.78:
		return wire.ReleaseAndLeave(g.name, owner, g.waiter(), g.chance(0.5))
	case p < 0.86:
		return g.broken(wire.Yield(g.name, owner, g.entry()), 4)
	case p < 0.94:
		return g.leave()
	case p < 0.97:
		return wire.ForceRelease(g.name)
	default:
		return wire.Inspect(g.name, pick(g, 0, 1, 2, 100))
	}
}

// passed is a call that passes a hold on.
func (g *generator) passed(owner quorumlock.Owner, ttl time.Duration) wire.Call {
	base, end, _ := strings.Cut(string(owner), ".") // most owners end in their cell
	if i := strings.LastIndexByte(string(owner), '.'); i > 0 {
		base, end = string(owner[:i]), string(owner[i+1:])
	}
	cell, _ := strconv.Atoi(end)
	owner = quorumlock.Owner(base)
	other, of := pick(g, owner, wire.Base(g.owner()), "p:1.1", "p:1.1"), cell
	if g.IntN(4) == 0 {
		of = g.IntN(3)
	}
	switch g.IntN(5) {
	case 0, 1:
		return wire.Park(g.name, owner, other, ttl, cell)
	case 2:
		return wire.Return(g.name, owner, other, cell, of)
	default:
		return g.guarded(wire.Attach(g.name, other, owner, g.counter()-g.Uint64N(2), of, cell))
	}
}

// shared is a call of an owner that shares the lock.
func (g *generator) shared(owner quorumlock.Owner) wire.Call {
	switch p := g.Float64(); {
	case p < 0.14:
		return g.guarded(g.among(wire.Acquire(g.name, owner, g.ttl(), 1, g.hint()).Shared()))
	case p < 0.48:
		return g.broken(g.guarded(g.among(wire.AcquireInTurn(g.name, owner, g.ttl(), g.hint(), g.entry()).Shared())), 3)
	case p < 0.52:
		return g.guarded(g.among(wire.Restore(g.name, owner, g.ttl(), g.hint()).Shared()))
	case p < 0.57:
		own := g.counter()
		return wire.Raise(g.name, owner, g.ttl(), own, own+g.Uint64N(3)*pick[uint64](g, 1, 1000, 1e9, 1e13)-g.Uint64N(2)).Shared()
	case p < 0.64:
		return wire.Downgrade(g.name, owner, g.ttl())
	case p < 0.80:
		return wire.Release(g.name, owner, 1)
	case p < 0.86:
		return wire.ReleaseAndLeave(g.name, owner, g.waiter(), g.chance(0.5))
	case p < 0.90:
		return g.leave()
	default:
		return g.broken(g.among(wire.Yield(g.name, owner, g.entry()).Shared()), 4)
	}
}

func (g *generator) leave() wire.Call {
	c := wire.Leave(g.name, g.waiter(), g.chance(0.5))
	if g.chance(0.2) {
		return c
	}
	return c.Through(pick(g, 1, 2, 3, 4, 20), g.IntN(3))
}

// among mostly names the cells of a lock.
func (g *generator) among(c wire.Call) wire.Call {
	if g.chance(1. / 7) {
		return c
	}
	cells := pick(g, [2]int{0, 0}, [2]int{0, 1}, [2]int{0, 2}, [2]int{0, 2}, [2]int{1, 2}, [2]int{2, 9})
	return c.Among(cells[0], cells[1])
}

func (g *generator) guarded(c wire.Call) wire.Call {
	if g.chance(0.9) {
		return c
	}
	return g.vouched(c)
}

// firstRun is the ID of a server's process until its restart.
const firstRun = "ba0"

// vouched is a guarded call of a client that knows the age of a server: of this one, perhaps.
func (g *generator) vouched(c wire.Call) wire.Call {
	c = c.Guarded(time.Duration(pick(g, 1, 999, 1000, 5000, 60_000)) * time.Millisecond)
	if g.chance(0.3) {
		return c
	}
	var s wire.Sight
	ms := time.Duration(pick(g, 0, 1, 500, 999, 1000, 1999, 2000, 5000, 60_000, 1e12))
	now := time.UnixMicro(int64(g.now))
	s.Saw(&wire.Reply{Value: []any{int64(3), int64(1), int64(0), g.server()}}, now)
	s.Vouch(&c, now.Add(ms*time.Millisecond))
	return c
}

// server is the name of the server, or of one that was there before, or of none.
func (g *generator) server() string {
	i := g.set.info
	return pick(g, i.Run+":"+i.History, i.Run+":"+i.History, i.Run+":"+i.Former, "ba:"+i.History, i.Run, i.Run+":a:"+i.History)
}

// broken is a call with an entry of a form that no client sends, now and then.
func (g *generator) broken(c wire.Call, entry int) wire.Call {
	if !g.chance(g.wild / 4) {
		return c
	}
	args := make([]any, c.ArgCount())
	for i, a := range c.Args() {
		args[i] = a
	}
	s := c.Args()[entry]
	if args[entry] = g.garbled(s); g.chance(0.7) {
		return wire.NewCall(c.Script, c.Keys(), args...)
	}
	args[entry] = pick(g, "c0:1", "c0:1 5 600 1", "c0:1 ticket 600 1 ", "c0:1 5 life 1 ", "c0:1 5 -1 1 ", "c0:1 5 0 1 ", "c0:1 5 0.5 1 ", "c0:1 5 600.0 1 ",
		"c0:1 5 600 1 soon 0 1 s", "c0:1 5 600 1 1800.5 0 1 s", "c0:1 5 600 1 1800 0 one s", s+" 9 s")
	return wire.NewCall(c.Script, c.Keys(), args...)
}

// garbled is a text in which a word is missing, or too much, or a space.
func (g *generator) garbled(s string) string {
	words := strings.Split(s, " ")
	i := g.IntN(len(words))
	switch g.IntN(7) {
	case 0:
		words[i] = ""
	case 6:
		words[max(i, len(words)-2)] = "one" // most often the attempt of an entry
	case 1:
		words = slices.Insert(words, i, "")
	case 2:
		words = slices.Delete(words, i, i+1)
	case 3:
		// As a ticket, the number would be too long a time.
		words = slices.Insert(words, min(max(i, 3), len(words)), "7")
	case 4:
		words[i] += pick(g, "\t", "\n", "\v", "\f", "\r") + "7"
	default:
		words = append(words, pick(g, "", "7"))
	}
	return strings.Join(words, " ")
}

// happening is an event of the server.
func (g *generator) happening() command {
	set := g.set
	what := g.IntN(10)
	if 4 <= what && what <= 6 && g.model.fixed != nil {
		what = 9
	}
	switch what {
	case 0:
		return command{does: "everything is forgotten", do: side.flush}
	case 1, 2, 3:
		key := pick(g, g.keys()...)
		return command{does: fmt.Sprintf("the key %q is evicted", key), do: func(s side) { s.forget(key) }}
	case 4:
		g.stamp++
		set.info.Run, set.info.History, set.info.Former = pick(g, set.info.Run, fmt.Sprintf("ba%d", g.stamp)), fmt.Sprintf("cd%d", g.stamp), scriptmodel.NoHistory
	case 5:
		g.stamp++
		set.info.Former, set.info.History = set.info.History, fmt.Sprintf("ef%d", g.stamp)
	case 6:
		set.info.Replica = !set.info.Replica
	case 7:
		set.mute = !set.mute
	case 8:
		if set.listening = nil; g.chance(0.7) {
			set.listening = []string{wire.UnlockChannel(g.name)}
			if g.latches > 0 {
				set.listening = append(set.listening, wire.LatchKey(g.name))
			}
		}
	default:
		set.info.Denied = g.chance(0.3)
		if set.missing = ""; g.chance(0.5) && g.model.fixed == nil {
			set.missing = pick(g, "run_id", "master_replid", "master_replid2")
		}
	}
	g.set = set
	return command{does: fmt.Sprintf("the server is %+v", set), set: &set}
}

// window is for how long an open release leaves the lock to Redisson's clients.
func (g *generator) window() time.Duration {
	return pick(g, 0, 0, time.Millisecond, 20*time.Millisecond, -2*time.Millisecond, 300*time.Millisecond, -300*time.Millisecond)
}
