package fence

import (
	"context"
	"fmt"
	"sync"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
)

// Store keeps the highest token of each resource, for [Middleware]. [Memory] and [Redis] are
// stores; [SQL.Store] returns one. A Store is safe for concurrent use.
type Store interface {
	// Enter records the token. If a higher one was recorded, it returns an error that matches
	// [ErrStale]. Otherwise it returns a function that is called once, when the request is done. A
	// store that is able to keeps later holders waiting until then.
	Enter(ctx context.Context, resource string, token uint64) (leave func(), err error)
}

// Memory is a [Store] in the memory of this process, for a resource that one process serves. A
// restart loses the tokens. It admits one request for a resource at a time. An admitted request is
// therefore done before one with a higher token is admitted, and its write cannot come late. It
// keeps a few bytes for each resource, forever. The zero value is ready for use.
type Memory struct {
	mu        sync.Mutex
	resources map[string]*remembered
}

type remembered struct {
	seen uint64        // guarded by Memory.mu
	turn chan struct{} // full while a request is in
}

// Enter implements [Store]. It waits until no other request for the resource is in. If ctx is done
// first, it returns ctx's error, and the token stays recorded. Lower tokens are refused from the
// time of the call on.
func (m *Memory) Enter(ctx context.Context, resource string, token uint64) (func(), error) {
	if ctx == nil {
		return nil, fmt.Errorf("quorumlock: fence: %w", quorumlock.ErrNilContext)
	}
	if err := errs.Join(checkResource(resource), checkToken(token)); err != nil {
		return nil, err
	}
	r, err := m.mark(resource, token)
	if err != nil {
		return nil, err
	}
	select {
	case r.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if _, err := m.mark(resource, token); err != nil { // a later holder came while this one waited
		<-r.turn
		return nil, err
	}
	return sync.OnceFunc(func() { <-r.turn }), nil
}

func (m *Memory) mark(resource string, token uint64) (*remembered, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.resources[resource]
	if r == nil {
		if m.resources == nil {
			m.resources = make(map[string]*remembered)
		}
		r = &remembered{turn: make(chan struct{}, 1)}
		m.resources[resource] = r
	}
	if token < r.seen {
		return nil, &StaleError{Resource: resource, Token: token, Seen: r.seen}
	}
	r.seen = token
	return r, nil
}
