package scriptmodel_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// mischief writes values to a lock's keys that no script has written: as a Redisson client may, or
// another user of the same names.
func (g *generator) mischief() command {
	key, v := g.name, scriptmodel.Value{}
	field := func(name, value string) { v.Fields = append(v.Fields, scriptmodel.Field{Name: name, Value: value}) }
	if g.latches > 0 && g.chance(0.8) {
		return g.latchScene()
	}
	if g.slots > 0 && g.chance(0.5) {
		return g.slotScene()
	}
	what := g.IntN(28)
	if g.crowds && g.chance(0.3) {
		what = 9
	} else if what == 9 {
		what = 10
	}
	if g.set.info.Former != scriptmodel.NoHistory && g.chance(0.2) {
		what = 11
	}
	switch what {
	case 0:
		key, v.Text = pick(g, g.keys()...), "text"
	case 1:
		key = pick(g, g.keys()...)
		field("some", "field")
	case 2:
		key = pick(g, g.keys()...)
		v.Members = []scriptmodel.Member{{Name: "c0:1", Score: 5.5}}
		if key == wire.SlotsKey(g.name) {
			v.Members[0].Score = 5 // a part of a slot is none
		}
	case 3, 4:
		field(g.redissonOwner(), pick(g, "1", "2", "0", "007", "123456789012345"))
	case 5:
		name, owner := g.name, g.owner()
		field(string(owner), pick(g, "1", "2", "", "x", "1x", "-1", "1.5", "123456789012", "1234567890123", "1234567890123456"))
		g.follow = func() wire.Call { return wire.Release(name, owner, 1) }
	case 6:
		field(pick(g, "mode", "nobody", ":1", "a b:1", "a:1b", "a:", "a:/1", "a:1/.", "a:b:1", " a:1", "a:1 ", "a:1.0/", "c0:1/1", "c0:1/x.0", "c0:1/x1.0", "c0:1/12.0", string(g.waiter())+"//1.0"), "1")
		if v.Fields[0].Name != "mode" && g.chance(0.5) {
			field("mode", "mutex")
		}
	case 7:
		field("8743c9c0-0795-4907-87fd-6c719a6b4586:41", "1")
		field("8743c9c0-0795-4907-87fd-6c719a6b4586:4"+pick(g, "1:write", "2"), "1")
		if g.chance(0.5) {
			field("mode", pick(g, "write", "mutex", "shared"))
		}
	case 8, 12, 13:
		key = wire.TokenKey(g.name)
		if g.chance(0.1) {
			field("some", "field")
			break
		}
		v.Text = pick(g, "", "0", "5", "-5", "1.5", " 7 ", "seven", "12x", "9007199254740989", "9007199254740990", "9007199254740991", "9007199254740992", "1000000000000000000000000000000.0",
			strconv.FormatInt(int64(g.now)+pick[int64](g, -60e6, -60e6, 1, 1, g.Int64N(1e12))+g.Int64N(3)-1, 10))
	case 9:
		return g.crowd()
	case 10:
		return g.strayEntry()
	case 14, 15:
		return g.strayHeir()
	case 16, 26:
		return g.throng()
	case 17:
		return g.twins()
	case 18, 27:
		return g.leftFree()
	case 23:
		return g.refreshBehind()
	case 24, 25:
		return g.readers()
	case 19: // threads that wait for a fair lock of Redisson's
		key, v.Items = wire.FairQueueKey(g.name), []string{"8743c9c0-0795-4907-87fd-6c719a6b4586:41", "8743c9c0-0795-4907-87fd-6c719a6b4586:42"}[g.IntN(2):]
		g.follow = func() wire.Call { return wire.Release(g.name, g.owner(), 1) }
		return put(key, v)
	case 20:
		key = wire.FairQueueKey(g.name)
		field("some", "field")
	case 21: // a counter that is kept for just long enough
		ttl := 30 * time.Second
		key, v.Text, v.Expires = wire.TokenKey(g.name), "7", int64(g.now/1000)+ttl.Milliseconds()+60000+pick[int64](g, -1, 0, 1)
		g.follow = func() wire.Call {
			switch g.IntN(3) {
			case 0:
				return wire.Downgrade(g.name, g.owner(), ttl)
			case 1:
				return g.passed(g.owner(), ttl)
			}
			return wire.Renew(g.name, g.owner(), ttl)
		}
		return put(key, v)
	case 22: // a latch, or a write lock of Redisson's
		mode := pick(g, "latch", "write")
		field(map[string]string{"latch": "quorumlock_latch", "write": "8743c9c0-0795-4907-87fd-6c719a6b4586:41:write"}[mode], "1")
		field("mode", mode)
	case 11:
		key = "quorumlock_age"
		g.follow = func() wire.Call {
			return g.vouched(wire.Acquire(g.name, g.owner(), g.ttl(), 1, g.hint()))
		}
		if !g.chance(0.1) {
			v.Text = pick(g, g.server(), g.server(), g.server(), "") + pick(g, " ", " ", " ", "") + pick(g, "", "0", "1", "999", "1000", "5000", "1000000000000") + pick(g, "", "", "x")
		} else {
			field("some", "field")
		}
	}
	// Miniredis's Lua reads these in another way.
	if g.model.fixed != nil && key == wire.TokenKey(g.name) && g.chance(0.3) {
		v.Text, v.Fields = pick(g, "1e3", "1e300", "nan", "999999999999999999", "1_000", "0e0", "-0", " \v7"), nil
	}
	if g.chance(0.8) {
		v.Expires = int64(g.now/1000) + pick[int64](g, 1, 10, 1000, 30_000)
	}
	return put(key, v)
}

// redissonOwner is an owner of Redisson's, or resembles one.
func (g *generator) redissonOwner() string {
	const owner = "8743c9c0-0795-4907-87fd-6c719a6b4586:41"
	if g.chance(0.5) {
		return owner
	}
	return pick(g, "z743c9c0-0795-4907-87fd-6c719a6b4586:41", "-8743c9c00795-4907-87fd-6c719a6b4586:41", "8743c9c0--07954907-87fd-6c719a6b4586:41", "8743c9c0-0795--490787fd-6c719a6b4586:41",
		"8743c9c0-0795-4907--87fd6c719a6b4586:41", "8743c9c0-0795-4907-87fd6c719a6b4586-:41", owner+".0", owner+"/1")
}

func put(key string, v scriptmodel.Value) command {
	slices.SortFunc(v.Fields, byName) // a server may list them in its own order
	return command{does: fmt.Sprintf("%q becomes %+v", key, v), do: func(s side) { s.put(key, v) }}
}

// scene gives keys these values; a key without a value is removed.
func scene(all map[string]scriptmodel.Value) command {
	for _, v := range all {
		slices.SortFunc(v.Members, byScore)
	}
	return command{does: fmt.Sprintf("the keys become %+v", all), do: func(s side) {
		for key, v := range all {
			if s.forget(key); v.Text != "" || len(v.Fields)+len(v.Members) > 0 {
				s.put(key, v)
			}
		}
	}}
}

// crowd is a long queue, of waiters of which some are dead.
func (g *generator) crowd() command {
	n := pick(g, 3, 20, 100, 101, 101, 101, 102, 200, 201, 250)
	spread := pick[int64](g, 1, 100, 2000, 5000)
	soonest := pick[int64](g, -3000, -200, 0, 200, 900, 990, 1500)
	first := pick[int64](g, 0, 1, 100, 340, 350, 360) // the first was called, and has some ms left
	var queue, entries scriptmodel.Value
	now := int64(g.now / 1000)
	callers, readers := "1", g.chance(g.shares)
	for i := range n {
		name := fmt.Sprintf("c%d:%d", i%3, i)
		queue.Members = append(queue.Members, scriptmodel.Member{Name: name, Score: float64(int64(epoch) + int64(i/2))})
		if callers = "1"; readers && g.chance(0.98) {
			callers = "1s"
		}
		stored := fmt.Sprintf("%d %s", now+soonest+g.Int64N(spread), callers)
		if i == 0 && first > 0 {
			mark := ""
			if g.chance(0.6) { // it is overdue, and waiters have been called
				mark = fmt.Sprintf(",%d", int64(epoch)+g.Int64N(int64(n/2+2)))
			}
			stored = fmt.Sprintf("%d%s %s", now+first, mark, callers)
		} else if g.chance(0.3) {
			stored += fmt.Sprintf(" %d 1800 0 1 s", now-g.Int64N(800))
		}
		if i == 0 || g.chance(0.97) {
			entries.Fields = append(entries.Fields, scriptmodel.Field{Name: name, Value: stored})
		}
	}
	queue.Expires, entries.Expires = now+5000, now+5001
	g.follow = g.behind
	return scene(map[string]scriptmodel.Value{g.name: {}, wire.QueueKey(g.name): queue, wire.EntriesKey(g.name): entries})
}

// behind is a call of one who comes to a crowd: at its end, somewhere in it, or without a ticket.
func (g *generator) behind() wire.Call {
	e := g.entry()
	switch g.IntN(5) {
	case 0:
		return wire.Acquire(g.name, g.owner(), g.ttl(), 1, g.hint())
	case 4:
		return wire.AcquireInTurn(g.name, g.owner(), g.ttl(), g.hint(), e).Shared()
	case 1:
		e.Ticket = int64(epoch) + g.Int64N(120)
	default:
		e.Ticket = int64(g.now)
	}
	return wire.AcquireInTurn(g.name, g.owner(), g.ttl(), g.hint(), e)
}

// strayEntry changes or removes the entry of one waiter.
func (g *generator) strayEntry() command {
	key := wire.EntriesKey(g.name)
	name := g.name
	g.follow = func() wire.Call {
		g.name = name
		return wire.Release(name, g.owner(), 1)
	}
	v, _ := g.peek(key)
	v.Fields = slices.Clone(v.Fields)
	if v.Text != "" || len(v.Members) > 0 || len(v.Fields) == 0 {
		v = scriptmodel.Value{Fields: []scriptmodel.Field{{Name: string(g.waiter())}}}
	}
	i := g.IntN(len(v.Fields))
	if queue, ok := g.peek(wire.QueueKey(g.name)); ok && len(queue.Members) > 0 && g.chance(0.5) {
		i = max(0, slices.IndexFunc(v.Fields, func(f scriptmodel.Field) bool { return f.Name == queue.Members[0].Name }))
	}
	if len(v.Fields) > 1 && g.chance(0.4) {
		v.Fields = slices.Delete(v.Fields, i, i+1)
		return put(key, v)
	}
	ms := int64(g.now / 1000)
	deadline := strconv.FormatInt(ms+pick[int64](g, -1, 0, 1, 300, 1000, 1001, 2500, 2501, 9000), 10)
	came := strconv.FormatInt(ms-pick[int64](g, -1, 0, 1, 649, 650, 651), 10)
	stored := pick(g, deadline+" 1", deadline+" 1 "+came+" 1800 0 1 s")
	switch g.IntN(3) {
	case 0:
		stored = g.garbled(stored)
	case 1:
		stored = pick(g, "", " ", "soon 1", " "+deadline+" 1", deadline+" 1 never 1800 0 1 s", deadline+" 1 "+came+" soon 0 1 s",
			deadline+" 1 "+came+" 1800.5 0 1 s", deadline+" 1 "+came+" 1800.5 0 1 s")
	}
	if v.Fields[i].Name == "served" { // servers differ in the spaces that a number may have
		stored = strconv.FormatInt(int64(epoch)+g.Int64N(20), 10)
	}
	v.Fields[i].Value = stored
	return put(key, v)
}

// leftFree is a queue during the time that open.lua leaves to peers: no waiter is the first. A
// called waiter is likely to leave, or to release.
func (g *generator) leftFree() command {
	name, waiter, ms := g.name, quorumlock.Owner("c0:1"), int64(g.now/1000)
	g.follow = func() wire.Call {
		g.name = name
		switch g.IntN(3) {
		case 0:
			return wire.ReleaseAndLeave(name, "c9:1.0", waiter, g.chance(0.5))
		case 1:
			return wire.ReleaseAndLeave(name, "c9:1.0", waiter, g.chance(0.5)).Open(g.window(), g.waiter())
		}
		return wire.Leave(name, waiter, g.chance(0.5))
	}
	expires := ms + 5000
	var hold scriptmodel.Value
	if g.chance(0.4) { // a peer came in time
		hold = scriptmodel.Value{Fields: []scriptmodel.Field{{Name: "8743c9c0-0795-4907-87fd-6c719a6b4586:41", Value: "1"}}, Expires: expires}
	}
	queue, entries := scriptmodel.Value{Expires: expires}, scriptmodel.Value{Expires: expires}
	for i, who := range []string{"c9:0", "c0:1", "c1:1", "c2:1"}[:2+g.IntN(3)] {
		stored := fmt.Sprintf("%d 1", ms+pick[int64](g, 1000, 1001, 2500, 2501, 5000))
		if i == 0 {
			stored = fmt.Sprintf("%d 0", ms+pick[int64](g, -1, 0, 1, 20, 20))
		}
		queue.Members = append(queue.Members, scriptmodel.Member{Name: who, Score: float64(i)})
		entries.Fields = append(entries.Fields, scriptmodel.Field{Name: who, Value: stored})
	}
	slices.SortFunc(entries.Fields, byName)
	return scene(map[string]scriptmodel.Value{name: hold, wire.QueueKey(name): queue, wire.EntriesKey(name): entries})
}

// strayHeir is a lock that is held and has one waiter, with a strange entry. The next call is
// likely to be the release, which would hand the lock over.
func (g *generator) strayHeir() command {
	name, holder, waiter, ms := g.name, quorumlock.Owner("c9:1.0"), "c0:1", int64(g.now/1000)
	g.follow = func() wire.Call {
		g.name = name
		if c := wire.Release(name, holder, 1); g.chance(0.7) {
			return c
		} else {
			return c.Open(-time.Duration(g.IntN(2))*time.Millisecond, "c9:0")
		}
	}
	deadline, came := strconv.FormatInt(ms+5000, 10), strconv.FormatInt(ms-pick[int64](g, 0, 1, 2, 649, 650, 651), 10)
	words := []string{deadline, pick(g, "1", "1", "1s"), came, pick(g, "1800", "1800", "3", "1800.5"), "0", "1", "s"}
	switch i := g.IntN(8); i {
	case 0: // nothing is strange
	case 7:
		words = append([]string{deadline}, words...)
	default:
		words[i] = ""
	}
	stored := strings.Join(words, " ")
	expires := ms + 5000
	hold := scriptmodel.Value{Fields: []scriptmodel.Field{{Name: string(holder), Value: "1"}}, Expires: expires}
	queue := scriptmodel.Value{Members: []scriptmodel.Member{{Name: waiter, Score: 5}}, Expires: expires}
	entries := scriptmodel.Value{Fields: []scriptmodel.Field{{Name: waiter, Value: stored}}, Expires: expires}
	token := scriptmodel.Value{Text: pick(g, "7", "7", "0", "1", "9007199254740989", "9007199254740990", "9007199254740991")}
	if g.chance(0.1) {
		token = scriptmodel.Value{Fields: []scriptmodel.Field{{Name: "some", Value: "field"}}}
	}
	return scene(map[string]scriptmodel.Value{name: hold, wire.TokenKey(name): token, wire.QueueKey(name): queue, wire.EntriesKey(name): entries})
}

// twins is a lock that a reader shares with a waiter's successors, each from another address of
// this server. The next call is the reader's release, which may hand the lock to the waiter.
func (g *generator) twins() command {
	name, ms, holder, waiter := g.name, int64(g.now/1000), quorumlock.Owner("c9:1.0"), "c0:1"
	g.follow = func() wire.Call {
		g.name = name
		return wire.Release(name, holder, 1)
	}
	share := func(ends int64) string { return fmt.Sprintf("%013d", ends) }
	expires := ms + 5000
	lock := scriptmodel.Value{Fields: []scriptmodel.Field{{Name: string(holder), Value: share(expires)}, {Name: "mode", Value: "shared"}}, Expires: expires}
	for cell := range 4 {
		if g.chance(0.3) {
			lock.Fields = append(lock.Fields, scriptmodel.Field{Name: fmt.Sprintf("%s/1.%d", waiter, cell), Value: share(ms + pick[int64](g, -1, 0, 0, 1, 1, 4000))})
		}
	}
	cells := pick(g, "", "0-1", "0-2", "0-2", "0-3", "1-2", "2-3", "-2", "1-", "0-2 ")
	stored := fmt.Sprintf("%d %ss%s %d 1800 %d 1 s", ms+5000, pick(g, "1", "1", "1", "12", ""), cells, ms, g.IntN(4))
	queue := scriptmodel.Value{Members: []scriptmodel.Member{{Name: waiter, Score: 5}}, Expires: expires}
	entries := scriptmodel.Value{Fields: []scriptmodel.Field{{Name: waiter, Value: stored}}, Expires: expires}
	slices.SortFunc(lock.Fields, byName)
	return scene(map[string]scriptmodel.Value{name: lock, wire.TokenKey(name): {Text: "7"}, wire.QueueKey(name): queue, wire.EntriesKey(name): entries})
}

// refreshBehind is a lock that a reader holds. A writer is first in its queue, and a reader or
// writer second. The next call refreshes the writer: a higher ticket may put it behind the second.
func (g *generator) refreshBehind() command {
	name, ms := g.name, int64(g.now/1000)
	expires := ms + 5000
	g.follow = func() wire.Call {
		g.name = name
		e := g.entry()
		e.Waiter, e.Ticket, e.Unsure = "c2:1", int64(epoch)+g.Int64N(3), g.chance(0.1)
		return wire.AcquireInTurn(name, wire.OwnerOf("c2:1", 2), g.ttl(), g.hint(), e)
	}
	lock := scriptmodel.Value{Fields: []scriptmodel.Field{{Name: "c9:1.0", Value: fmt.Sprintf("%013d", expires)}, {Name: "mode", Value: "shared"}}, Expires: expires}
	queue := scriptmodel.Value{Members: []scriptmodel.Member{{Name: "c2:1", Score: float64(epoch)}, {Name: "c2:2", Score: float64(epoch) + 1}}, Expires: expires}
	second := fmt.Sprintf("%d %s", ms+pick[int64](g, 999, 1000, 1001, 5000), pick(g, "1", "1s", "1s", "1s0-2"))
	entries := scriptmodel.Value{Fields: []scriptmodel.Field{{Name: "c2:1", Value: fmt.Sprintf("%d 1", expires)}, {Name: "c2:2", Value: second}}, Expires: expires}
	return scene(map[string]scriptmodel.Value{name: lock, wire.QueueKey(name): queue, wire.EntriesKey(name): entries})
}

// throng is a lock with many sharers, some of whom were handed it in their turn. Often a caller
// waits to have it alone. The next call is likely to be the next attempt of one of those.
func (g *generator) throng() command {
	name, ms := g.name, int64(g.now/1000)
	expires := ms + 5000
	lock := scriptmodel.Value{Fields: []scriptmodel.Field{{Name: "mode", Value: "shared"}}, Expires: expires}
	n, over := pick(g, 1, 2, 3, 14, 15, 16, 16, 17, 18, 18, 18, 40, 40, 40), g.chance(0.1)
	longest, until := "", int64(0)
	for i := range n {
		who := fmt.Sprintf("c1:%d.0", i)
		if i < 6 && g.chance(0.5) {
			who = fmt.Sprintf("c0:1/%d.%d", 1+i/2, i%2)
		}
		ends := ms + pick(g, 5000-g.Int64N(5100), 5000-g.Int64N(5100), 5000-g.Int64N(3), 5000-g.Int64N(3), 5000, g.Int64N(2))
		if over {
			ends = ms - g.Int64N(2)
		}
		if ends > until {
			longest, until = who, ends
		}
		lock.Fields = append(lock.Fields, scriptmodel.Field{Name: who, Value: fmt.Sprintf("%013d", ends)})
	}
	if lock.Expires = until + pick[int64](g, 0, 0, 0, 1, 2); lock.Expires <= ms {
		lock.Expires = expires
	}
	// With one owner, a release leaves only this and the mode.
	if n == 1 && g.chance(0.5) || g.chance(g.wild) {
		lock.Fields = append(lock.Fields, scriptmodel.Field{Name: "c8:1.0", Value: pick(g, "10000000000000", "1234567890123456", fmt.Sprint("x", ms+9000), fmt.Sprint(ms+9000, "x"))})
	}
	var queue, entries scriptmodel.Value
	leaves := g.chance(0.4) // the next call releases the longest share
	if g.chance(0.7) && !(leaves && g.chance(0.7)) {
		queue = scriptmodel.Value{Members: []scriptmodel.Member{{Name: "c2:1", Score: float64(epoch)}}, Expires: expires}
		entries = scriptmodel.Value{Fields: []scriptmodel.Field{{Name: "c2:1", Value: fmt.Sprintf("%d 1", ms+5000)}}, Expires: expires}
	}
	if !leaves && g.chance(0.2) { // readers: the first was called a moment ago
		queue.Members = append(queue.Members, scriptmodel.Member{Name: "c2:2", Score: float64(epoch) + 1}, scriptmodel.Member{Name: "c2:3", Score: float64(epoch) + 2})
		entries.Fields = append(entries.Fields, scriptmodel.Field{Name: "c2:2", Value: fmt.Sprintf("%d 1s", ms+1000)}, scriptmodel.Field{Name: "c2:3", Value: fmt.Sprintf("%d 1s", ms+5000)})
		queue.Expires, entries.Expires = expires, expires
	}
	g.follow = func() wire.Call {
		g.name = name
		if leaves {
			return wire.Release(name, quorumlock.Owner(longest), 1)
		} else if over && g.chance(0.5) {
			return wire.AcquireInTurn(name, "c2:1/1.0", g.ttl(), g.hint(), g.entry())
		}
		switch owner := wire.OwnerOf("c0:1", pick(g, 1, 2, 3, 4)); g.IntN(5) {
		case 2:
			twin, _, _ := strings.Cut(longest, ".")
			return wire.Acquire(name, wire.OfCell(quorumlock.Owner(twin), g.IntN(3)), g.ttl(), 1, g.hint()).Shared().Among(0, 2)
		case 0:
			return wire.Leave(name, "c0:1", g.chance(0.9)).Through(pick(g, 1, 2, 3, 4), g.IntN(2))
		case 1:
			return wire.ReleaseAndLeave(name, wire.OfCell(owner, g.IntN(2)), "c0:1", g.chance(0.9))
		}
		e := g.entry()
		e.Waiter, e.Successor = "c0:1", wire.Successor{Attempt: pick(g, 1, 2, 3, 4, 15, 20), TTL: time.Second, Secret: "s"}
		return g.among(wire.AcquireInTurn(name, wire.OfCell("c0:1.9", g.IntN(3)), g.ttl(), g.hint(), e).Shared())
	}
	slices.SortFunc(lock.Fields, byName)
	return scene(map[string]scriptmodel.Value{name: lock, wire.QueueKey(name): queue, wire.EntriesKey(name): entries})
}

// readers is a queue of waiters that want shares. Some know that they may have them: see sharers.lua.
// The next call is likely to be about one of them, or of the holder.
func (g *generator) readers() command {
	name, ms, n := g.name, int64(g.now/1000), pick(g, 1, 2, 15, 17, 17, 18, 20, 34, 35, 36, 40, 140)
	expires := ms + 5000
	var lock, queue, entries scriptmodel.Value
	switch g.IntN(3) {
	case 0:
		lock = scriptmodel.Value{Fields: []scriptmodel.Field{{Name: "c9:1.0", Value: "1"}}, Expires: expires}
	case 1:
		lock = scriptmodel.Value{Fields: []scriptmodel.Field{{Name: "c9:1.0", Value: fmt.Sprintf("%013d", expires)}, {Name: "mode", Value: "shared"}}, Expires: expires}
	}
	writer, dead, served := g.IntN(2*n), pick(g, 0, 0, 0.1, 0.5, 1), g.IntN(n+2)
	many := g.chance(0.3) // who share, and most know that they may
	if many {
		n, writer, dead, served = 40, 40, 0, 17+g.IntN(24)
		lock = scriptmodel.Value{Fields: []scriptmodel.Field{{Name: "c9:1.0", Value: fmt.Sprintf("%013d", expires)}, {Name: "mode", Value: "shared"}}, Expires: expires}
	}
	for i := range n {
		waiter, wants := fmt.Sprintf("c%d:%d", i%3, i), "1s"
		if i == writer {
			wants = "1"
		} else if g.chance(0.03) {
			wants = pick(g, "1t", "1sm")
		}
		stored := fmt.Sprintf("%d %s", ms+pick[int64](g, 5000, 5000, 2501, 2500, 1001, 1000), wants)
		if g.chance(dead) {
			stored = fmt.Sprintf("%d %s", ms-g.Int64N(2), wants)
		} else if g.chance(0.3) {
			stored += fmt.Sprintf(" %d 1800 0 1 %s", ms-g.Int64N(700), pick(g, "s", "7sm", "7t"))
		}
		queue.Members = append(queue.Members, scriptmodel.Member{Name: waiter, Score: float64(int64(epoch) + int64(i))})
		entries.Fields = append(entries.Fields, scriptmodel.Field{Name: waiter, Value: stored})
	}
	if many || g.chance(0.7) {
		entries.Fields = append(entries.Fields, scriptmodel.Field{Name: "served", Value: strconv.FormatInt(int64(epoch)+int64(served), 10)})
	}
	queue.Expires, entries.Expires = expires, expires
	g.follow = func() wire.Call {
		g.name = name
		i := g.IntN(n)
		e := g.entry()
		e.Waiter, e.Ticket = quorumlock.Owner(fmt.Sprintf("c%d:%d", i%3, i)), int64(epoch)+int64(i)
		if g.chance(0.2) {
			e.Waiter, e.Ticket = "c0:999", int64(epoch)+g.Int64N(int64(n)+1)
		}
		switch g.IntN(9) {
		case 0:
			return wire.Release(name, "c9:1.0", 1)
		case 1:
			return wire.Downgrade(name, "c9:1.0", g.ttl())
		case 2:
			return wire.Leave(name, e.Waiter, g.chance(0.5))
		case 3, 5:
			return wire.Yield(name, "c9:1.0", e).Shared()
		case 4:
			return wire.AcquireInTurn(name, wire.OfCell(wire.OwnerOf(e.Waiter, 1), 0), g.ttl(), g.hint(), e)
		}
		return g.among(wire.AcquireInTurn(name, wire.OfCell(wire.OwnerOf(e.Waiter, 1), 0), g.ttl(), g.hint(), e).Shared())
	}
	slices.SortFunc(lock.Fields, byName)
	slices.SortFunc(entries.Fields, byName)
	return scene(map[string]scriptmodel.Value{name: lock, wire.QueueKey(name): queue, wire.EntriesKey(name): entries})
}
