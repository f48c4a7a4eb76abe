package transport

import (
	"sync"
	"time"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// sight has what the node knows of the age of its server. The zero value is ready to use.
type sight struct {
	mu    sync.Mutex
	known wire.Sight
}

// join adds it to guarded calls, and learns from their replies. It returns the function to call
// with the replies.
func (s *sight) join(calls []wire.Call, answer func([]wire.Reply)) func([]wire.Reply) {
	guarded := false
	for i := range calls {
		guarded = guarded || calls[i].IsGuarded()
	}
	if !guarded {
		return answer
	}
	now := time.Now()
	s.mu.Lock()
	for i := range calls {
		s.known.Vouch(&calls[i], now)
	}
	s.mu.Unlock()
	return func(replies []wire.Reply) {
		now := time.Now()
		s.mu.Lock()
		for i := range replies {
			s.known.Saw(&replies[i], now)
		}
		s.mu.Unlock()
		answer(replies)
	}
}
