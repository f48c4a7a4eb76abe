package election

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// Leader is the leader of an election at the time of a read.
type Leader struct {
	Owner   quorumlock.Owner `json:"owner,omitempty"` // empty without a leader; its label names the process
	Value   string           `json:"value"`           // the leader's value
	Token   uint64           `json:"token"`           // its fencing token
	Version uint64           `json:"version"`         // the number of the value among the values of this leader, from 1

	// Sure reports whether a quorum of the nodes has this holder and this value. Then no other
	// owner can win the lock, and no later value was at a quorum before the call. Otherwise the
	// leader is a guess: a new leader before it is known at a quorum, or a former one shortly
	// before the expiry of its keys.
	Sure bool `json:"sure"`

	Nodes  int           `json:"nodes"`       // number of nodes with this leader and value
	Needed int           `json:"needed"`      // the quorum
	TTL    time.Duration `json:"ttl_seconds"` // until the keys expire at a quorum, unless the leader renews or resigns
}

// MarshalJSON encodes the leader with its TTL in seconds.
func (l Leader) MarshalJSON() ([]byte, error) {
	type plain Leader
	return json.Marshal(struct {
		plain
		TTL float64 `json:"ttl_seconds"`
	}{plain(l), l.TTL.Seconds()})
}

// String returns the leader in one line, for people.
func (l Leader) String() string {
	if l.Owner == "" {
		return "no leader"
	}
	who, doubt := l.Owner.Label(), ""
	if who == "" {
		who = string(l.Owner)
	}
	if !l.Sure {
		doubt = ", not sure"
	}
	return fmt.Sprintf("leader %s, value %.100q, token %d, at %d nodes of the %d needed%s", who, l.Value, l.Token, l.Nodes, l.Needed, doubt)
}

// Leader reads the leader from the nodes. It returns as soon as a quorum agrees. Otherwise it waits
// until ctx is done, for the node timeout at most. It changes nothing on the nodes.
//
// With a nil error there is a leader; see [Leader.Sure]. The errors are:
//
//   - [ErrNoLeader] if there is no leader;
//   - a *[quorumlock.QuorumError], along with the best guess, if fewer nodes than the quorum
//     answered;
//   - ctx's error if ctx is done first;
//   - [quorumlock.ErrClosed] after Close of the client.
//
// A dead leader is returned until its keys expire. In the last part of that time, the drift, it is
// not sure, because its lease is over.
func (e *Election) Leader(ctx context.Context) (Leader, error) {
	if err := e.check(ctx); err != nil {
		return Leader{}, err
	}
	v, err := e.look(ctx)
	return v.leader, err
}

// view is the result of a read.
type view struct {
	leader  Leader
	pending bool // an owner may hold the lock without a value at a quorum: a change is under way
}

// answer is the reply of one node.
type answer struct {
	cell     int
	standing wire.Standing
	err      error
}

// look asks all nodes, and returns when further answers cannot change the outcome.
func (e *Election) look(ctx context.Context) (view, error) {
	if err := ctx.Err(); err != nil {
		return view{}, err
	}
	var answers []answer
	var v view
	var err error
	failed := e.lock.Gather(ctx, func(cell int) wire.Call { return wire.Leader(e.lock.Key(cell)) }, func(cell int, reply wire.Reply) (decided bool) {
		standing, wrong := reply.Led()
		answers = append(answers, answer{cell, standing, wrong})
		v, decided, err = e.judge(answers)
		return decided
	})
	if failed != nil {
		return view{}, failed
	}
	return v, err
}

// judge returns the view of the answers so far. decided is false if further answers may change it.
func (e *Election) judge(answers []answer) (v view, decided bool, err error) {
	need, cells := e.lock.Quorum()
	failed := &quorumlock.QuorumError{Needed: need}
	var said []answer // of the nodes that did not fail
	for _, a := range answers {
		if a.err != nil {
			failed.Nodes = append(failed.Nodes, e.lock.NodeError(a.cell, a.err))
			continue
		}
		failed.Granted++
		said = append(said, a)
	}
	mute := cells - len(said) // nodes without an answer, and failed nodes
	v.leader = e.best(said, mute)
	v.pending = v.leader.Owner != "" && !v.leader.Sure || e.mayBeHeld(said, mute)
	all := len(answers) == cells
	switch {
	case v.leader.Sure:
		v.pending = false
		return v, true, nil
	case len(said) < need:
		v.pending = true
		return v, all, failed
	case v.leader.Owner != "":
		return v, all, nil
	}
	return v, all || !v.pending, ErrNoLeader
}

// best returns the leader at a quorum, or else the latest that may be at a quorum, as mute nodes
// may have it. It returns no leader if no holder has a value.
func (e *Election) best(said []answer, mute int) Leader {
	need, _ := e.lock.Quorum()
	var best Leader
	for _, a := range said {
		s := a.standing
		owner := ownerAt(a)
		if owner == "" || !s.Leads {
			continue
		}
		l := Leader{Owner: owner, Value: s.Value, Token: s.Token, Version: s.Version, Needed: need}
		holders, lasting := 0, 0
		var ttls []time.Duration
		for _, b := range said {
			if ownerAt(b) != owner {
				continue
			}
			holders++
			if o := b.standing; o.Leads && o.Token == s.Token && o.Version == s.Version {
				ttls = append(ttls, o.TTL)
				if e.lasts(o.TTL) {
					lasting++
				}
			}
		}
		if holders+mute < need {
			continue // the owner cannot have a quorum
		}
		l.Nodes, l.Sure = len(ttls), lasting >= need
		slices.Sort(ttls)
		if len(ttls) >= need {
			l.TTL = ttls[len(ttls)-need]
		}
		if l.Sure {
			return l
		}
		if l.Token > best.Token || l.Token == best.Token && l.Version > best.Version {
			best = l
		}
	}
	return best
}

// lasts reports whether the lease of a holder may still be valid, if its key expires in ttl. A
// lease ends earlier than its keys by the drift.
func (e *Election) lasts(ttl time.Duration) bool {
	return ttl > e.set.TTL-e.set.Drift.Validity(e.set.TTL, 0)
}

// mayBeHeld reports whether an owner may hold the lock at a quorum, as mute nodes may have the
// owner.
func (e *Election) mayBeHeld(said []answer, mute int) bool {
	need, _ := e.lock.Quorum()
	if mute >= need {
		return true
	}
	for _, a := range said {
		n := 0
		for _, b := range said {
			if b.standing.Holder != "" && wire.Base(b.standing.Holder) == wire.Base(a.standing.Holder) {
				n++
			}
		}
		if n > 0 && n+mute >= need {
			return true
		}
	}
	return false
}

// ownerAt returns the holder of the lock at the cell of the answer. It returns no owner if the
// holder is of another cell: a server with two addresses must not count twice.
func ownerAt(a answer) quorumlock.Owner {
	owner := wire.Base(a.standing.Holder)
	if owner == "" || wire.OfCell(owner, a.cell) != a.standing.Holder {
		return ""
	}
	return owner
}
