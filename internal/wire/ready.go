package wire

import (
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock"
)

var (
	ready        = newScript("ready", lua("ready"))
	guardedReady = newScript("ready", lua("guard")+lua("ready"))
)

// readyName is the name of a lock that nobody uses. The key of its queue is one that a user who may lock may write, also
// if the user is limited to the keys of one prefix.
const readyName = "quorumlock-ready"

// Ready asks whether the server would grant a lock whose name begins with prefix. The restart guard refuses for that long
// after the server's start; with 0 there is no guard.
func Ready(prefix string, quarantine time.Duration) Call {
	keys := []string{QueueKey(prefix + readyName)}
	if quarantine <= 0 {
		return NewCall(ready, keys)
	}
	return NewCall(guardedReady, keys, milliseconds(quarantine))
}

// Readied reads the reply to Ready. The error is [quorumlock.ErrQuarantined] if the restart guard keeps the node from
// granting.
func (r Reply) Readied() error {
	if r.Err != nil {
		return r.Err
	}
	if n, err := r.integer(); err == nil && n == 1 {
		return nil
	}
	if n, _, ok := r.leading(); ok && len(n) == 3 && n[0] == 3 {
		return fmt.Errorf("%w: it grants again in %v", quorumlock.ErrQuarantined, time.Duration(n[1])*time.Millisecond)
	}
	return r.unexpected()
}
