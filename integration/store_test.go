package integration

import (
	"sync"
	"testing"

	"github.com/anishathalye/porcupine"
)

// store is the resource behind a lock: a register that refuses reads and writes with a fencing
// token lower than one it has seen. It is safe for concurrent use.
type store struct {
	mu    sync.Mutex
	token uint64
	value int
	ops   []porcupine.Operation
}

func (s *store) read(worker int, token uint64, now func() int64) (value int, taken bool) {
	out := s.take(worker, storeInput{token: token}, now)
	return out.value, out.taken
}

func (s *store) write(worker int, token uint64, value int, now func() int64) (taken bool) {
	return s.take(worker, storeInput{token: token, writes: true, value: value}, now).taken
}

func (s *store) take(worker int, in storeInput, now func() int64) storeOutput {
	call := now()
	s.mu.Lock()
	out := storeOutput{taken: in.token >= s.token}
	if out.taken {
		s.token = in.token
		if in.writes {
			s.value = in.value
		} else {
			out.value = s.value
		}
	}
	s.mu.Unlock()
	op := porcupine.Operation{ClientId: worker, Input: in, Output: out, Call: call, Return: now()}
	s.mu.Lock()
	s.ops = append(s.ops, op)
	s.mu.Unlock()
	return out
}

// check checks the store's operations: no write was lost, and none accepted with a stale token.
func (s *store) check(t *testing.T, name string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := linearizable(pictures(), t.Name()+" store of "+name, fencing, s.ops); err != nil {
		t.Errorf("%q: what it protects: %v", name, err)
	}
}
