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

// Porcupine looks for an order of the operations of a history, each at some moment between its call
// and its return, that a sequential model allows.

// leases is the model of a lock of any kind, with leases that may end by themselves. A mutex has
// slot 0 alone, and no readers. In each slot a writer is alone, and its token is higher than all
// before. A reader's token is not lower than that of a writer before.
var leases = porcupine.Model{
	Init: func() any { return lockState{} },
	Step: func(state, input, _ any) (ok bool, _ any) {
		s, in := state.(lockState), input.(leaseInput)
		if in.slot < 0 || in.slot >= permits {
			return false, s
		}
		at := &s[in.slot]
		switch {
		case in.does == acquires && in.reads:
			ok = at.writer == 0 && in.token >= at.last
			at.readers, at.read = at.readers+1, max(at.read, in.token)
		case in.does == acquires:
			ok = at.writer == 0 && at.readers == 0 && in.token > max(at.last, at.read)
			at.writer, at.last = in.token, in.token
		case in.does == downgrades:
			ok = at.writer == in.token
			at.writer, at.readers = 0, at.readers+1
		case in.reads:
			at.readers--
			ok = at.readers >= 0
		default:
			ok = at.writer == in.token
			at.writer = 0
		}
		return ok, s
	},
	DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}

const permits = 3 // of the semaphores

type lockState [permits]struct {
	writer  uint64 // its token; no writer is 0
	readers int
	last    uint64 // the highest token of a writer
	read    uint64 // of a reader
}

type leaseInput struct {
	does  string
	slot  int
	reads bool
	token uint64
}

const (
	acquires   = "acquire"
	downgrades = "downgrade"
	releases   = "release"
)

// operations returns the grants of one lock for the model leases. A lost lease ends at its deadline
// or, if its holder was notified before, at that time; no earlier. From the call of Downgrade on, a
// writer's lease is a reader's.
func (h *history) operations(grants []*grant) (ops []porcupine.Operation) {
	for _, g := range grants {
		add := func(does string, reads bool, call, back int64) {
			ops = append(ops, porcupine.Operation{ClientId: g.worker, Input: leaseInput{does, g.slot, reads, g.token}, Call: call, Return: back})
		}
		add(acquires, g.reads, h.at(g.called), h.at(g.granted))
		reads, back := g.reads, h.at(g.left)
		if !g.downgraded.IsZero() && g.downgraded.Before(g.end()) {
			reads = true
			add(downgrades, true, h.at(g.downgraded), h.at(g.end()))
		}
		if g.err != nil || g.end().Before(g.leaving) {
			back = never
		}
		add(releases, reads, h.at(g.end()), back)
	}
	return ops
}

const never = math.MaxInt64 // the return of an operation that may take effect at any later time

// fencing is the model of a store that is read and written under a lock with fencing tokens. Each
// grant reads once, at a higher token than any before, and writes as long as no higher one is seen.
// It is stricter than a real store, which accepts the same token again.
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

// linearizable returns an error if a history breaks the model, with the path of its picture below
// dir.
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
	// Verbose, for the picture.
	result, info := porcupine.CheckOperationsVerbose(m, ops, time.Minute)
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
