package engine

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// latchNode is the latch of one node; run does what latch.lua does.
type latchNode struct {
	server string // empty without a latch
	open   bool
	ids    []string
}

func (n *latchNode) run(call wire.Call) wire.Reply {
	args := call.Args()
	needed, what, server, ids := number(args[0]), wire.LatchMode(args[1]), args[3], args[7:]
	tail, cut := number(args[5]), number(args[6])
	if what != wire.ReadLatch && (n.server != "" || what != wire.KeepLatch) {
		if n.server == "" {
			n.server = server
		}
		for _, id := range ids {
			if !n.open && !slices.Contains(n.ids, id) {
				n.ids = append(n.ids, id)
			}
		}
		n.open = n.open || what == wire.OpenLatch || len(n.ids) >= needed
	}
	if n.open {
		return wire.Reply{Value: []any{int64(2), n.server, int64(0), int64(0), []any{}}}
	}
	state, count, digest, last := int64(0), int64(0), int64(0), []any{}
	if n.server != "" {
		state = 1
	}
	for i, id := range n.ids {
		if i >= len(n.ids)-tail {
			last = append(last, id)
		}
		if cut >= 0 && (i >= cut || slices.Contains(ids, id)) {
			continue
		}
		h := fnv.New32a()
		h.Write([]byte(id))
		count, digest = count+1, digest+int64(h.Sum32())
	}
	return wire.Reply{Value: []any{state, n.server, count, digest, last}}
}

func number(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

type latchNodeName int

func (n latchNodeName) String() string { return "node-" + strconv.Itoa(int(n)) }

// looker is a caller with one look at a time.
type looker struct {
	look  *Look
	round int  // the number of the current round
	over  bool // that round is over
	ids   []string
	least int // lower bound of the size
}

// Looks of several callers. Calls and replies arrive in random order, and some are lost.
func TestLooksCountEachIDOnceAndLoseNone(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		g := rand.New(rand.NewPCG(seed, 0))
		nodes := make([]latchNode, 1+g.IntN(5))
		terms := Latch{Name: "l", N: 1 + g.IntN(20), Need: len(nodes)/2 + 1, Retention: time.Hour}
		for i := range nodes {
			terms.Cells = append(terms.Cells, LatchCell{"l", latchNodeName(i)})
		}
		var (
			todo               []func() // calls and replies on their way
			begun, ended       = make(map[string]bool), make(map[string]bool)
			found              int // 1 + the largest size seen
			ids, looks, rounds int
		)
		if g.IntN(8) == 0 { // lost calls have left their ids at random nodes
			terms.N = 20 + g.IntN(80)
			for id := range g.IntN(terms.N + 20) {
				begun[fmt.Sprint("old-", id)] = true
				for i := range nodes {
					if n := &nodes[i]; g.IntN(2) == 0 && !n.open {
						n.server, n.ids = fmt.Sprint("old.", i), append(n.ids, fmt.Sprint("old-", id))
						n.open = len(n.ids) == terms.N
					}
				}
			}
		}
		lossy := g.IntN(2) * g.IntN(len(nodes)) // number of nodes that lose calls and replies
		send := func(k *looker) {
			rounds++
			round := rounds
			k.round, k.over = round, false
			for i := range nodes {
				call, loses := k.look.Request(i), i < lossy && g.IntN(2) == 0
				answer := func(r wire.Reply) {
					if k.round == round && !k.over {
						k.over = k.look.Answer(i, r)
					}
				}
				lost := func() { answer(wire.Reply{Err: errors.New("lost")}) }
				todo = append(todo, func() {
					if loses && g.IntN(2) == 0 { // the call arrives later, or never
						todo = append(todo, lost)
						if g.IntN(2) == 0 {
							todo = append(todo, func() { nodes[i].run(call) })
						}
						return
					}
					reply := nodes[i].run(call)
					if todo = append(todo, func() { answer(reply) }); loses {
						todo[len(todo)-1] = lost
					}
				})
			}
		}
		begin := func(k *looker) {
			looks++
			*k = looker{least: max(found-1, len(ended))}
			mode := wire.ReadLatch
			if g.IntN(3) > 0 {
				for mode = wire.MakeLatch; g.IntN(3) > 0 && len(k.ids) < 4; ids++ {
					k.ids = append(k.ids, fmt.Sprintf("%04d", ids-g.IntN(2)*g.IntN(ids+1)))
				}
				slices.Sort(k.ids)
				k.ids = slices.Compact(k.ids)
			}
			for _, id := range k.ids {
				begun[id] = true
			}
			k.look = NewLook(&terms, mode, k.ids, found, fmt.Sprintf("server-%d", looks))
			send(k)
		}
		over := func(k *looker) {
			size, err := k.look.End()
			if err != nil {
				if few := (*quorumlock.QuorumError)(nil); lossy <= len(nodes)-terms.Need || !errors.As(err, &few) {
					t.Fatalf("seed %d: a look failed with %d lossy nodes of %d: %v", seed, lossy, len(nodes), err)
				}
				return
			}
			if size < min(k.least, terms.N) || size > min(len(begun), terms.N) {
				t.Fatalf("seed %d: %d ids of %d, though %d were there before, and %d were ever added", seed, size, terms.N, k.least, len(begun))
			}
			for _, id := range k.ids {
				ended[id] = true
				has := 0
				for i := range nodes {
					if nodes[i].open || slices.Contains(nodes[i].ids, id) {
						has++
					}
				}
				if has < terms.Need {
					t.Fatalf("seed %d: %d of %d nodes have %s after a look that added it", seed, has, len(nodes), id)
				}
			}
			if found = max(found, k.look.Found()); k.look.Found() != size+1 && (size > 0 || len(k.ids) > 0) {
				t.Fatalf("seed %d: %d ids, and the look has found %d", seed, size, k.look.Found())
			}
		}
		callers := make([]looker, 1+g.IntN(4))
		for i := range callers {
			begin(&callers[i])
		}
		for looks < 25 {
			for i := range callers {
				k := &callers[i]
				switch {
				case !k.over:
				case k.look.Next():
					send(k)
				default:
					over(k)
					begin(k)
				}
			}
			i := g.IntN(len(todo))
			next := todo[i]
			todo = slices.Delete(todo, i, i+1)
			next()
		}
	}
}

// play plays a look to its end. In each round, the cells of the next of orders answer, in that
// order; the last of orders serves all further rounds.
func play(k *Look, nodes []*latchNode, orders ...[]int) (size int, err error) {
	for again, round := true, 0; again; again, round = k.Next(), round+1 {
		for _, cell := range orders[min(round, len(orders)-1)] {
			if k.Answer(cell, nodes[cell].run(k.Request(cell))) {
				break
			}
		}
	}
	return k.End()
}

func TestALookNoticesForgottenIDs(t *testing.T) {
	t.Parallel()
	terms := Latch{Name: "l", N: 9, Need: 2, Retention: time.Hour}
	for i := range 3 {
		terms.Cells = append(terms.Cells, LatchCell{"l", latchNodeName(i)})
	}
	fresh := func() []*latchNode { return []*latchNode{{}, {}, {}} }
	nodes := fresh()
	k := NewLook(&terms, wire.ReadLatch, nil, 0, "s1")
	if size, err := play(k, nodes, []int{0, 1}); size != 0 || err != nil || k.Found() != 0 {
		t.Errorf("a Count before any Done: %d, %v, found %d", size, err, k.Found())
	}
	// A Done is under way: one node has its id. The repair creates the latch at the other two.
	nodes[0].server, nodes[0].ids = "s2.0", []string{"x"}
	k = NewLook(&terms, wire.ReadLatch, nil, 0, "s3")
	if size, err := play(k, nodes, []int{0, 1}, []int{1, 2}, []int{1, 2}); size != 0 || err != nil || k.Found() != 1 {
		t.Errorf("a Count that repairs: %d, %v, found %d", size, err, k.Found())
	}
	found := k.Found()
	k = NewLook(&terms, wire.MakeLatch, []string{"a", "b"}, found, "s4")
	if size, err := play(k, nodes, []int{1, 2}); size != 2 || err != nil || k.Found() != 3 {
		t.Errorf("a Done: %d, %v, found %d", size, err, k.Found())
	}
	for forgets, left := range [][]string{{}, {"a"}} {
		gone := fresh()
		for i := range forgets * 3 {
			gone[i].server, gone[i].ids = fmt.Sprint("s4.", i), left
		}
		k = NewLook(&terms, wire.MakeLatch, []string{"c"}, 4, "s5") // three were there
		if size, err := play(k, gone, []int{0, 1, 2}); !errors.Is(err, quorumlock.ErrLatchForgotten) {
			t.Errorf("after a loss of all but %v: %d, %v", left, size, err)
		}
		for _, n := range gone[forgets*3:] {
			if n.server != "" {
				t.Error("a Done adds to a latch that is gone")
			}
		}
	}
	nodes = fresh()
	for i, n := range nodes {
		n.server, n.ids = fmt.Sprint("s4.", i), []string{fmt.Sprint("a", i), fmt.Sprint("longer", i)}
	}
	if size, err := play(NewLook(&terms, wire.MakeLatch, []string{"c"}, 9, "s5"), nodes, []int{0, 1, 2}); !errors.Is(err, quorumlock.ErrLatchForgotten) {
		t.Errorf("after each node lost other ids: %d, %v", size, err) // of 8 ids, 6 are left
	}
	// Two addresses of one server count once.
	nodes = fresh()
	nodes[1] = nodes[0]
	var few *quorumlock.QuorumError
	k = NewLook(&terms, wire.MakeLatch, []string{"a"}, 0, "s6")
	if size, err := play(k, nodes, []int{0, 1, 2}); size != 1 || err != nil || len(nodes[2].ids) != 1 {
		t.Errorf("two servers at three addresses: %d, %v", size, err)
	}
	nodes[2] = nodes[0]
	if _, err := play(NewLook(&terms, wire.MakeLatch, nil, 0, "s7"), nodes, []int{0, 1, 2}); !errors.As(err, &few) || few.Granted != 1 {
		t.Errorf("one server at three addresses: %v", err)
	}
	// Wrong uses that prevent a quorum are reported.
	refused := wire.Reply{Err: errors.New("LATCH 3 s8")}
	for refusals, wrong := range []bool{false, false, true} {
		nodes = fresh()
		k = NewLook(&terms, wire.MakeLatch, []string{"a"}, 0, "s9")
		for cell := range 3 {
			reply := refused
			if cell >= refusals {
				if reply = nodes[cell].run(k.Request(cell)); refusals == 1 && cell == 2 {
					reply = wire.Reply{Err: errors.New("no answer")}
				}
			}
			if k.Answer(cell, reply) {
				break
			}
		}
		k.Next()
		if _, err := k.End(); (wire.IsWrongUse(err) && !errors.Is(err, quorumlock.ErrNoQuorum)) != wrong || (err == nil) != (refusals == 0) {
			t.Errorf("%d wrong uses: %v", refusals, err)
		}
	}
}
