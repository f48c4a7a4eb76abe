package integration

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// Porcupine looks for an order of the operations of a history, each at some moment between its call and its
// return, that a sequential model allows.

// leases is the model of a lock whose leases may end by themselves: one holder at a time, and each grant
// has a higher token than all before.
var leases = porcupine.Model{
	Init: func() any { return leaseState{} },
	Step: func(state, input, _ any) (bool, any) {
		s, in := state.(leaseState), input.(leaseInput)
		if in.does == acquires {
			return s.holder == 0 && in.token > s.last, leaseState{in.token, in.token}
		}
		return s.holder == in.token, leaseState{0, s.last}
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprint(input) },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}

type leaseState struct{ holder, last uint64 } // by their tokens; no holder is 0

type leaseInput struct {
	does  string
	token uint64
}

const (
	acquires = "acquire"
	releases = "release"
	loses    = "lose"
)

const never = math.MaxInt64 // the return of an operation that may take effect at any later time

// leaseOperations are the grants of one lock for the model leases. A lease that is lost ends at its
// deadline or, if its holder was told before, then; at that moment at the earliest.
func (h *history) leaseOperations(grants []*grant) []porcupine.Operation {
	var ops []porcupine.Operation
	for _, g := range grants {
		ops = append(ops, porcupine.Operation{ClientId: g.worker, Input: leaseInput{acquires, g.token}, Call: h.at(g.called), Return: h.at(g.granted)})
		end := porcupine.Operation{ClientId: g.worker, Input: leaseInput{releases, g.token}, Call: h.at(g.leaving), Return: h.at(g.left)}
		if g.err != nil {
			end.Return = never
		}
		if g.end().Before(g.leaving) {
			end.Input, end.Call, end.Return = leaseInput{loses, g.token}, h.at(g.end()), never
		}
		ops = append(ops, end)
	}
	return ops
}

// fencing is the model of a store that is read and written under a lock with fencing tokens: each grant
// reads once, at a higher token than was seen, and writes as long as no higher one is. It is stricter than
// a store can be, which takes the same token again.
var fencing = porcupine.Model{
	Init: func() any { return storeState{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(storeState), input.(storeInput), output.(storeOutput)
		switch {
		case !out.taken:
			return in.token < s.token, s
		case in.writes:
			return in.token == s.token, storeState{in.token, in.value}
		}
		return in.token > s.token && out.value == s.value, storeState{in.token, s.value}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}

type storeState struct {
	token uint64
	value int
}

type storeInput struct {
	token  uint64
	writes bool
	value  int // to write
}

type storeOutput struct {
	taken bool
	value int // read
}

// linearizable returns an error if a history does not fit the model, with the path of its picture below dir.
func linearizable(dir, name string, m porcupine.Model, ops []porcupine.Operation) error {
	last := int64(0)
	for _, o := range ops {
		if o.Return != never {
			last = max(last, o.Return)
		}
	}
	for i := range ops {
		ops[i].Return = min(ops[i].Return, last+1)
		ops[i].Call = min(ops[i].Call, last+1)
	}
	if porcupine.CheckOperationsTimeout(m, ops, time.Minute) == porcupine.Ok {
		return nil
	}
	result, info := porcupine.CheckOperationsVerbose(m, ops, time.Minute) // remembers what the picture needs
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file := strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>|{} `, r) {
			return '_'
		}
		return r
	}, name)
	path := filepath.Join(dir, fmt.Sprintf("%s-%d.html", file, time.Now().UnixMilli()))
	if err := porcupine.VisualizePath(m, info, path); err != nil {
		return err
	}
	return fmt.Errorf("no order of the %d operations makes sense (%s); see the picture %s", len(ops), result, path)
}

// pictures is the directory for the histories that break a promise.
func pictures() string {
	if dir := os.Getenv("QUORUMLOCK_HISTORIES"); dir != "" {
		return dir
	}
	return filepath.Join(os.TempDir(), "quorumlock-histories")
}
