package wire

import (
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock"
)

// Sight is what a client knows of the age of a node's server. Under the restart guard, clients
// measure the quarantine by their own monotonic clocks: see guard.lua. A server that has answered a
// client is at least as old as the time since that answer, as long as it is the same server.
//
// The zero value knows nothing. A Sight is not safe for concurrent use.
type Sight struct {
	server string    // as the guard names it; empty before the first refusal
	born   time.Time // the server is older than the time since then
}

// Vouch tells the guard of a call what the client knows. The call must be made at the time now.
func (s *Sight) Vouch(c *Call, now time.Time) {
	if s.server != "" && c.IsGuarded() {
		c.args[c.count-1].text, c.age = s.server, now.Sub(s.born)
	}
}

// Saw records the reply to a guarded call. The reply must have come by the time now.
func (s *Sight) Saw(r *Reply, now time.Time) {
	q, ok := r.quarantine()
	if !ok {
		return
	}
	if born := now.Add(-q.age); q.server != s.server || born.Before(s.born) {
		s.server, s.born = q.server, born
	}
}

// IsGuarded reports whether the call has the restart guard.
func (c *Call) IsGuarded() bool { return c.count > 0 && c.args[c.count-1].kind == aGuard }

// quarantine is a refusal by the restart guard.
type quarantine struct {
	left   time.Duration
	age    time.Duration // of the server, at least
	server string
}

// quarantine returns the refusal in the reply, if it is one.
func (r *Reply) quarantine() (q quarantine, ok bool) {
	n, values, ok := r.leading()
	if !ok || r.Err != nil || len(values) != 4 || n[0] != 3 || n[1] <= 0 || n[2] < 0 {
		return q, false
	}
	q.left, q.age = time.Duration(n[1])*time.Millisecond, time.Duration(n[2])*time.Millisecond
	q.server, ok = values[3].(string)
	return q, ok && q.server != ""
}

func (q quarantine) err() error {
	return fmt.Errorf("%w: it grants again in %v", quorumlock.ErrQuarantined, q.left)
}
