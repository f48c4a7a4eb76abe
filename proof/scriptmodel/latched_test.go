package scriptmodel_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

// mostlyLatches turns one sequence of ten into one that is mostly about a latch. Its own generator
// keeps the other sequences unchanged.
func (g *generator) mostlyLatches(seed uint64) {
	if own := rand.New(rand.NewPCG(seed, 0x1a7c)); own.IntN(10) == 0 {
		g.latches, g.opens = 0.9, []int{1, 2, 3, 5, 12, 40}[own.IntN(6)]
	}
}

// latched is a call on a latch.
func (g *generator) latched() wire.Call {
	n := g.opens
	if g.chance(0.02) {
		n += g.IntN(3) - 1
	}
	stored, _ := g.peek(wire.LatchKey(g.name))
	var there []string
	for _, m := range stored.Members {
		there = append(there, m.Name)
	}
	var ids []string
	for range pick(g, 0, 1, 1, 1, 2, 2, 5) {
		if len(there) > 0 && g.chance(0.4) {
			ids = append(ids, there[g.IntN(len(there))])
		} else {
			ids = append(ids, fmt.Sprintf("id-%d", g.IntN(2*g.opens+2)))
		}
	}
	slices.Sort(ids)
	ids = slices.DeleteFunc(slices.Compact(ids), func(id string) bool { return id == "" })
	server := fmt.Sprintf("s%d.%d", g.IntN(3), g.IntN(3))
	switch p := g.Float64(); {
	case p < 0.15:
		return wire.LatchTail(g.name, n, pick(g, 0, 1, 1, 2, 3, len(there), 64))
	case p < 0.4:
		cut := pick(g, 0, 1, max(0, len(there)-2), max(0, len(there)-1), len(there), math.MaxInt32)
		return wire.LatchRest(g.name, n, g.ttl(), server, cut, ids)
	}
	mode := pick(g, wire.ReadLatch, wire.KeepLatch, wire.KeepLatch, wire.MakeLatch, wire.MakeLatch, wire.MakeLatch, wire.RestoreLatch, wire.OpenLatch)
	if mode == wire.OpenLatch && g.chance(0.7) {
		mode = wire.RestoreLatch
	}
	return wire.Latch(g.name, n, mode, g.ttl(), server, ids...)
}

// latchScene is a latch of which a part is missing or strange, or another use of its name.
func (g *generator) latchScene() command {
	key, v := g.name, scriptmodel.Value{}
	field := func(name, value string) { v.Fields = append(v.Fields, scriptmodel.Field{Name: name, Value: value}) }
	switch g.IntN(9) {
	case 0, 1:
		n := strconv.Itoa(g.opens)
		field("quorumlock_latch", pick(g, n+" s1.0", n+" s1.0", n+" s1.0 open", n+" s1.0 ajar", n+" s\v1.0", n+" s1.0\topen", n+"  s1.0", n, n+" ", "0"+n+" s1.0", "x"+n+" s1.0", n+"x s1.0", "", "7 s1.0 open"))
		if g.chance(0.8) {
			field("mode", "latch")
		}
	case 2, 3:
		key = wire.LatchKey(g.name)
		for i := range g.IntN(6) {
			v.Members = append(v.Members, scriptmodel.Member{Name: fmt.Sprintf("id-%d", i), Score: float64(i + 1)})
		}
		if g.chance(0.7) {
			v.Members = append(v.Members, scriptmodel.Member{Score: pick[float64](g, -1, -2, -1-1<<52, -1<<52, -2251799813685248, 3)})
		}
		slices.SortFunc(v.Members, byScore)
	case 4:
		for _, f := range []string{"a:1", "b:1", "a b:1", "a:1x", "c0:1/1.0", ":1", "some"} {
			if g.chance(0.3) {
				field(f, "1")
			}
		}
		if g.chance(0.6) {
			field("mode", pick(g, "mutex", "shared", "read", "latch"))
		}
	case 5:
		v.Members = []scriptmodel.Member{{Name: pick(g, "quorumlock_semaphore", "some"), Score: 5}}
	case 6:
		key, v.Text = pick(g, wire.TokenKey(g.name), g.name, wire.LatchKey(g.name)), "7"
	case 7:
		key, v.Items = wire.LatchKey(g.name), []string{"item"} // other scripts have no model of a list
	case 8:
		key = wire.LatchKey(g.name)
		field("some", "field")
	}
	if g.chance(0.7) {
		v.Expires = int64(g.now/1000) + pick[int64](g, 1, 10, 1000, 30_000)
	}
	return put(key, v)
}

// isOwner reports whether a field is one of those that latch.lua takes for an owner: the server
// decides which one comes first.
func isOwner(field string) bool {
	name, after, _ := strings.Cut(field, ":")
	return name != "" && !strings.Contains(name, " ") && strings.Trim(after, "0123456789/.") == "" && strings.IndexAny(after, "0123456789") == 0
}
