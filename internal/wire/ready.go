package wire

import "time"

var (
	ready        = newScript("ready", lua("ready"))
	guardedReady = newScript("ready", lua("guard")+lua("ready"))
)

// ReadyName is the name of a lock that no caller uses. Under a prefix, a user who may lock names
// with that prefix may also write its keys.
const ReadyName = "quorumlock-ready"

// Ready tests whether the server would grant the lock name, which no caller uses. The restart guard
// refuses for the quarantine of [Call.Guarded]; 0 means no guard.
func Ready(name string, quarantine time.Duration) Call {
	if quarantine <= 0 {
		return newCall(ready, name, lockAll)
	}
	return newCall(guardedReady, name, lockAll, guard(quarantine))
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
	if q, ok := r.quarantine(); ok {
		return q.err()
	}
	return r.unexpected()
}
