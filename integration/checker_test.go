package integration

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/quorumlock/quorumlock"
)

// A checker that cannot fail proves nothing: each of these histories breaks a promise.

// story builds the history of one lock from its events, in ms.
type story struct {
	h      *history
	grants []*grant
}

func newStory() *story { return &story{h: &history{began: time.Now()}} }

func (p *story) ms(n int) time.Time { return p.h.began.Add(time.Duration(n) * time.Millisecond) }

// held adds a lease: Lock was called and returned, Unlock was called and returned.
func (p *story) held(token uint64, called, granted, leaving, left int) *grant {
	g := &grant{
		worker: len(p.grants), lock: "x", token: token, called: p.ms(called), granted: p.ms(granted),
		leaving: p.ms(leaving), left: p.ms(left), until: p.ms(leaving + 1000),
	}
	p.grants = append(p.grants, g)
	return g
}

func TestCheckerOfLeasesRefusesBrokenHistories(t *testing.T) {
	lost := func(p *story, g *grant) { g.until, g.told, g.err = p.ms(50), p.ms(52), quorumlock.ErrLost }
	unconfirmed := func(_ *story, g *grant) { g.err = errors.New("no quorum") }
	slot := func(n int) func(*story, *grant) { return func(_ *story, g *grant) { g.slot = n } }
	reads := func(_ *story, g *grant) { g.reads = true }
	downgraded := func(p *story, g *grant) { g.downgraded = p.ms(20) }
	type lease struct {
		token                          uint64
		called, granted, leaving, left int
		is                             func(*story, *grant)
	}
	for _, tt := range []struct {
		name   string
		leases []lease
		good   bool
	}{
		{"one after the other, granted while the release was under way", []lease{{5, 0, 10, 20, 30, nil}, {6, 0, 25, 40, 50, nil}}, true},
		{"a lost lease ends at its deadline", []lease{{5, 0, 10, 90, 91, lost}, {6, 20, 51, 60, 61, nil}}, true},
		{"a release that nobody confirmed may come late", []lease{{5, 0, 10, 20, 30, unconfirmed}, {6, 20, 400, 410, 411, nil}}, true},
		{"two holders at one time", []lease{{5, 0, 10, 50, 60, nil}, {6, 20, 30, 40, 45, nil}}, false},
		{"granted before the deadline of a lost lease", []lease{{5, 0, 10, 90, 91, lost}, {6, 20, 49, 60, 61, nil}}, false},
		{"a token twice", []lease{{5, 0, 10, 20, 30, nil}, {5, 35, 40, 50, 60, nil}}, false},
		{"tokens fall", []lease{{6, 0, 10, 20, 30, nil}, {5, 35, 40, 50, 60, nil}}, false},

		{"readers share", []lease{{5, 0, 10, 50, 60, reads}, {6, 0, 20, 40, 50, reads}, {7, 0, 70, 80, 90, nil}}, true},
		{"what is downgraded is shared", []lease{{5, 0, 10, 50, 60, downgraded}, {5, 0, 30, 40, 45, reads}}, true},
		{"a reader beside a writer", []lease{{5, 0, 10, 50, 60, nil}, {5, 0, 30, 40, 45, reads}}, false},
		{"a writer beside a reader", []lease{{5, 0, 10, 50, 60, reads}, {6, 0, 30, 40, 45, nil}}, false},
		{"a writer beside what was downgraded", []lease{{5, 0, 10, 50, 60, downgraded}, {6, 0, 30, 40, 45, nil}}, false},
		{"a reader's token is that of a later writer", []lease{{6, 0, 10, 20, 30, reads}, {6, 40, 50, 60, 70, nil}}, false},
		{"a reader's token is lower than an earlier writer's", []lease{{6, 0, 10, 20, 30, nil}, {5, 40, 50, 60, 70, reads}}, false},

		{"every slot at one time, with tokens of their own", []lease{{5, 0, 10, 50, 60, slot(0)}, {4, 0, 20, 40, 50, slot(1)}, {5, 0, 20, 40, 50, slot(2)}, {6, 30, 60, 70, 80, slot(1)}}, true},
		{"a slot with two holders", []lease{{5, 0, 10, 50, 60, slot(1)}, {6, 0, 20, 40, 45, slot(1)}}, false},
		{"a slot beyond the permits", []lease{{5, 0, 10, 50, 60, slot(permits)}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newStory()
			for _, l := range tt.leases {
				if g := p.held(l.token, l.called, l.granted, l.leaving, l.left); l.is != nil {
					l.is(p, g)
				}
			}
			verdict(t, leases, p.h.operations(p.grants), tt.good)
		})
	}
}

func TestCheckerOfTheStoreRefusesBrokenHistories(t *testing.T) {
	op := func(at int64, in storeInput, out storeOutput) porcupine.Operation {
		return porcupine.Operation{ClientId: int(in.token), Input: in, Output: out, Call: at, Return: at + 5}
	}
	read := func(at int64, token uint64, value int) porcupine.Operation {
		return op(at, storeInput{token: token}, storeOutput{taken: true, value: value})
	}
	write := func(at int64, token uint64, value int, taken bool) porcupine.Operation {
		return op(at, storeInput{token: token, writes: true, value: value}, storeOutput{taken: taken})
	}
	for _, c := range []struct {
		name string
		ops  []porcupine.Operation
		good bool
	}{
		{"one after the other", []porcupine.Operation{read(0, 1, 0), write(10, 1, 7, true), read(20, 2, 7), write(30, 2, 8, true)}, true},
		{"a stale write is refused", []porcupine.Operation{read(0, 1, 0), read(10, 2, 0), write(20, 1, 7, false), write(30, 2, 8, true)}, true},
		{"a stale write is taken", []porcupine.Operation{read(0, 1, 0), read(10, 2, 0), write(20, 1, 7, true)}, false},
		{"a write is lost", []porcupine.Operation{read(0, 1, 0), write(10, 1, 7, true), read(20, 2, 0)}, false},
		{"two holders with one token", []porcupine.Operation{read(0, 1, 0), read(10, 1, 0), write(20, 1, 7, true), write(30, 1, 7, true)}, false},
		{"a write is refused for nothing", []porcupine.Operation{read(0, 1, 0), write(10, 1, 7, false)}, false},
	} {
		t.Run(c.name, func(t *testing.T) { verdict(t, fencing, c.ops, c.good) })
	}
}

// verdict demands that the history is found to be good, or else refused with a picture of it.
func verdict(t *testing.T, m porcupine.Model, ops []porcupine.Operation, good bool) {
	t.Helper()
	dir := t.TempDir()
	err := linearizable(dir, t.Name(), m, ops)
	if good {
		if err != nil {
			t.Error(err)
		}
		return
	}
	if err == nil {
		t.Fatal("the checker takes it")
	}
	_, path, told := strings.Cut(err.Error(), "see the picture ")
	if !told || !strings.HasPrefix(path, dir) {
		t.Fatalf("%v, want it to tell of a picture below %s", err, dir)
	}
	picture, readErr := os.ReadFile(path)
	must(t, readErr)
	if !strings.Contains(string(picture), "<html") {
		t.Errorf("%s is no picture", path)
	}
}

// The plain checks of a history find the same, and late news of a loss, which no model has.
func TestChecksOfAHistoryRefuseALateWord(t *testing.T) {
	for name, late := range map[string]func(p *story, g *grant){
		"told late":                  func(p *story, g *grant) { g.told = g.until.Add(margin + time.Second) },
		"never told":                 func(p *story, g *grant) { g.leaving = g.until.Add(margin + time.Second) },
		"granted after the validity": func(p *story, g *grant) { g.granted = g.until.Add(margin + time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newStory()
			g := p.held(5, 0, 10, 20, 30)
			late(p, g)
			if g.kept() == nil {
				t.Error("the check takes it")
			}
			if err := p.held(6, 40, 50, 60, 70).kept(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestChecksOfAHistoryRefuseTwoHolders(t *testing.T) {
	p := newStory()
	first := p.held(5, 0, 10, 50, 60)
	must(t, follows(first, p.held(6, 20, 51, 55, 56)))
	for name, g := range map[string]*grant{
		"at one time":   p.held(6, 20, 49, 55, 56),
		"a token twice": p.held(5, 20, 51, 55, 56),
		"tokens fall":   p.held(4, 20, 51, 55, 56),
	} {
		if follows(first, g) == nil {
			t.Errorf("%s: the check takes it", name)
		}
	}
}
