package engine

import (
	"errors"

	"github.com/quorumlock/quorumlock/internal/core"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// errSilent is wire.ErrRecalled at a node that has not answered its last call, or was never called.
var errSilent = errors.New(wire.ErrRecalled.Error() + ", and the node has not answered lately")

// Recalled returns the machine's reply to an acquire of a first attempt, or to its release, when
// both were cancelled before they were sent. The node has neither a grant nor an entry. So slow or
// distant nodes cost short holds and handoffs little.
//
// For the machine, the release found nothing. If the node does not answer (Health.Answers), the
// release is unsent: the next waiter cannot count on that node.
func Recalled(do core.Do, answers bool) core.Reply {
	switch {
	case !answers:
		return core.Reply{Err: errSilent, Unsent: true}
	case do == core.Acquire:
		return core.Reply{Err: wire.ErrRecalled, Unsent: true}
	}
	return core.Reply{}
}
