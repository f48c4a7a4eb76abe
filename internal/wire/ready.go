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

// ReadyName is the name of a lock that no caller uses. Every user with the permissions of a lock may write its keys, even a
// user limited to one prefix.
const ReadyName = "quorumlock-ready"

// Ready tests whether the server would grant the lock name, which no caller uses. The restart guard refuses for that
// long after the server's start; with 0 there is no guard.
func Ready(name string, quarantine time.Duration) Call {
	if quarantine <= 0 {
		return newCall(ready, name, lockAll)
	}
	return newCall(guardedReady, name, lockAll, ms(quarantine))
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
