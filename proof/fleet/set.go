package fleet

import (
	"math"
	"math/bits"
	"slices"

	"github.com/anishathalye/porcupine"
)

// SetCall is a call on a latch: it adds an id, or returns the number of ids.
type SetCall struct {
	Adds             bool
	ID               int   // added; valid if Adds
	Size             int   // returned; valid unless Adds
	Called, Returned int64 // logical time: distinct within one instant
	OK               bool  // it has succeeded
}

// IsSet reports whether the calls are linearizable on a set of ids that only grows. A size counts n
// ids at most. An addition that has not succeeded may come at any later time, or never. If an id is
// 16 or more, the check is isOrdered: not exponential, but it finds fewer violations.
func IsSet(n int, calls []SetCall) bool {
	const few = 16
	isIn, last := isLinearizable, 0
	calls = slices.Clone(calls)
	calls = slices.DeleteFunc(calls, func(c SetCall) bool { return !c.OK && !c.Adds })
	for i := range calls {
		c := &calls[i]
		if !c.OK {
			c.Returned = math.MaxInt64
		}
		last = max(last, c.ID)
	}
	if last >= few {
		isIn = isOrdered
	}
	return isIn(n, calls)
}

func isLinearizable(n int, calls []SetCall) bool {
	model := porcupine.Model{
		Init: func() any { return uint64(0) },
		Step: func(state, input, _ any) (bool, any) {
			ids, c := state.(uint64), input.(SetCall)
			if c.Adds {
				return true, ids | 1<<c.ID
			}
			return min(bits.OnesCount64(ids), n) == c.Size, ids
		},
	}
	var ops []porcupine.Operation
	for i, c := range calls {
		ops = append(ops, porcupine.Operation{ClientId: i, Input: c, Call: c.Called, Return: c.Returned})
	}
	return porcupine.CheckOperations(model, ops)
}

// isOrdered checks each size. It is at least the number of ids added before its call, or n. It is
// at most the number of ids whose addition began before its return. It is no smaller than a size
// that was returned before its call.
func isOrdered(n int, calls []SetCall) bool {
	for _, c := range calls {
		if c.Adds {
			continue
		}
		before, begun := make(map[int]bool), make(map[int]bool)
		for _, o := range calls {
			switch {
			case o.Adds && o.Called < c.Returned:
				begun[o.ID] = true
				if o.Returned < c.Called {
					before[o.ID] = true
				}
			case !o.Adds && o.Returned < c.Called && o.Size > c.Size:
				return false
			}
		}
		if c.Size < min(len(before), n) || c.Size > len(begun) {
			return false
		}
	}
	return true
}
