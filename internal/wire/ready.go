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

// ReadyName is the name of a lock that no caller uses. Under a prefix, a user who may lock names
// with that prefix may also write its keys.
const ReadyName = "quorumlock-ready"

// Ready tests whether the server would grant the lock name, which no caller uses. For the
// quarantine after the server's start, the restart guard refuses; a quarantine of 0 means no guard.
func Ready(name string, quarantine time.Duration) Call {
	if quarantine <= 0 {
		return newCall(ready, name, lockAll)
	}
	return newCall(guardedReady, name, lockAll, ms(quarantine))
}

// Readied reads the reply to Ready. It returns [quorumlock.ErrQuarantined] if the restart guard
// keeps the node from granting.
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
