package wire

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
)

var (
	proclaim = newScript("proclaim", lua("proclaim"))
	withdraw = newScript("withdraw", lua("withdraw"))
	leader   = newScript("leader", lua("leader"))
)

const leaderPrefix = "quorumlock_leader"

// LeaderKey returns the key of the value that the holder of a lock published as leader. The channel
// on which its changes are published has the same name.
func LeaderKey(name string) string {
	return string(appendPrefixed(nil, leaderPrefix, braced(name), name))
}

// Proclaim writes the value of owner, who holds the lock with the given token, and keeps it for
// ttl. Versions count the values of one leader, from 1; 0 is the data of a hold.
func Proclaim(name string, owner quorumlock.Owner, ttl time.Duration, token, version uint64, value string) Call {
	return newCall(proclaim, name, lockLeader, who(owner), ms(ttl), number(token), number(version), leaderChannel(), text(value))
}

// KeepProclaimed is Proclaim without the value: it renews a version that the node already has.
func KeepProclaimed(name string, owner quorumlock.Owner, ttl time.Duration, token, version uint64) Call {
	return newCall(proclaim, name, lockLeader, who(owner), ms(ttl), number(token), number(version), leaderChannel())
}

// Withdraw deletes the value if it is the owner's.
func Withdraw(name string, owner quorumlock.Owner) Call {
	return newCall(withdraw, name, lockLeader, who(owner), leaderChannel())
}

// Leader reads the holder of the lock and the value that this owner published.
func Leader(name string) Call { return newCall(leader, name, lockLeader) }

// Proclamation is a node's answer to Proclaim and KeepProclaimed.
type Proclamation int64

const (
	NotHeld    Proclamation = iota // the owner lacks the lock there, or published a later version
	Proclaimed                     // the node has the version
	NotThere                       // the node lacks this version: call Proclaim with the value
	Outranked                      // an owner with a higher token has published a value
)

// Proclaimed reads the reply to Proclaim and KeepProclaimed. It returns [quorumlock.ErrNotALock] if
// a key holds something else. The node then changed nothing.
func (r Reply) Proclaimed() (Proclamation, error) {
	if r.Err != nil {
		return NotHeld, r.leaderFailure()
	}
	n, err := r.integer()
	if err == nil && (n < int64(NotHeld) || n > int64(Outranked)) {
		return NotHeld, r.unexpected()
	}
	return Proclamation(n), err
}

// Standing is the state of an election at one node.
type Standing struct {
	Holder  quorumlock.Owner // as the node stores it, with its cell; empty if nobody holds the lock
	TTL     time.Duration    // until the lock's key expires; 0 if nobody holds it
	Leads   bool             // whether the holder has published a value as leader
	Token   uint64           // of the holder; valid if Leads, like Version
	Version uint64
	Value   string // of the leader, or the data of the hold
}

// Led reads the reply to Leader.
func (r Reply) Led() (Standing, error) {
	if r.Err != nil {
		return Standing{}, r.leaderFailure()
	}
	fields, err := r.values()
	if err != nil {
		return Standing{}, err
	}
	if len(fields) != 3 {
		return Standing{}, r.unexpected()
	}
	held, ok := fields[0].([]any)
	pttl, ok2 := fields[1].(int64)
	led, ok3 := fields[2].([]any)
	if !ok || !ok2 || !ok3 || len(led) != 0 && len(led) != 3 {
		return Standing{}, r.unexpected()
	}
	s := Standing{TTL: max(time.Duration(pttl)*time.Millisecond, 0)}
	var lock quorumlock.State
	if err := r.holders(&lock, held, 0); err != nil {
		return Standing{}, err
	}
	for i := 0; i < len(held) && lock.Owner != ""; i += 2 {
		if who := held[i].(string); who != "mode" { // holders has looked
			s.Holder = quorumlock.Owner(who)
		}
	}
	if len(led) == 0 {
		return s, nil
	}
	token, ok := led[0].(string)
	version, ok2 := led[1].(string)
	s.Value, ok3 = led[2].(string)
	if s.Token, err = strconv.ParseUint(token, 10, 64); err != nil || !ok || !ok2 || !ok3 {
		return Standing{}, r.unexpected()
	}
	if s.Version, err = strconv.ParseUint(version, 10, 64); err != nil {
		return Standing{}, r.unexpected()
	}
	s.Leads = s.Version > 0
	return s, nil
}

// leaderFailure is failure for the scripts that use the leader's value.
func (r Reply) leaderFailure() error {
	return r.explain(func(said string) error {
		if key, ok := strings.CutPrefix(said, "NOTAVALUE "); ok {
			return fmt.Errorf("%w: the leader's value is kept in %.200q", quorumlock.ErrNotALock, key)
		}
		if strings.HasPrefix(said, "NOTALOCK ") {
			return r.failure()
		}
		return nil
	})
}
