// Package multilock takes several locks as one: all of them, or none.
//
//	both, err := multilock.New([]quorumlock.Locker{
//		client.Mutex("myapp:lock:account:1"),
//		client.Mutex("myapp:lock:account:2"),
//	})
//	lease, err := both.Lock(ctx)
//
// A member may be a Mutex, an RWMutex or a Semaphore of packages node and redlock, the reader's
// side of an RWMutex, or another MultiLock. Members may be on different nodes.
//
// A MultiLock waits in the queues of all its members with one ticket, so MultiLocks that share
// members do not block each other forever. While it waits for a member that is held, it keeps its
// position in the queues of the others: later callers for a free member wait behind it, in the
// order of their tickets. So combine only locks that must be held together. While too few nodes of
// a member answer, the MultiLock lets others pass. Once the nodes answer again, it has its former
// position.
//
// # Why it is sound
//
// A MultiLock is held when every member has a quorum of its nodes for one owner. Its validity
// counts from before the first request to any of them. So each member is held as if it were alone,
// and its own rules exclude writers, readers or holders of the slot from the whole. If one member
// is lost, the lease is lost. The token is raised at a quorum of every member, so it is above all
// earlier tokens of each.
//
// There is no deadlock among calls of Lock, in whatever order members are named and kinds are
// mixed. Among the callers that wait for each other, one has the lowest ticket. It is first in the
// queue of every member that it lacks, keeps none from itself, and gets each as it becomes free.
// Nested calls have no such guarantee.
//
// See package quorumlock for its promises.
package multilock

import (
	"context"
	"strings"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/client"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/options"
	"github.com/quorumlock/quorumlock/internal/settings"
)

// Mutex is a lock of all its members. It is a [quorumlock.Locker], safe for concurrent use; its
// zero value is not usable. It needs no closing.
//
// All members are acquired in parallel, under one owner and one TTL. Their one fencing token is
// higher than that of any earlier grant of any member; of a reader's side, than that of any earlier
// writer. If one member is lost, the whole lease is lost, and Unlock still releases the others.
type Mutex struct {
	inner
	lock *client.Lock
}

// inner hides the method Member, which makes a MultiLock a member of another, from godoc.
type inner = client.Member

var _ quorumlock.Locker = (*Mutex)(nil)

// New returns the lock of all members, which are locks of packages node, redlock and multilock with
// different nodes or names: a Mutex, an RWMutex, its RLocker, a Semaphore, or a MultiLock. It does
// no I/O.
//
// The defaults are those of the first member's client, such as the TTL, the wait, the Logger and
// the Observer; opts override them. If another member's client has a conflicting default, such as
// another TTL, New returns an error with the name of the option: give the option to New. Of the
// options of a single member, only the quorum and the prefix apply; New refuses a restart guard of
// one member alone.
//
// The MultiLock belongs to the client of its first member, and is closed with it. Shut down the
// clients of other members later: once their nodes are closed, a lease of the MultiLock can be
// neither renewed nor released there.
//
// New also returns an error for a repeated lock, as in a transfer from an account to itself; for
// more than 1,000 locks, those of nested MultiLocks included; for names of more than 65,536 bytes
// in all, with their prefixes; and for more locks at one node than the node can answer within its
// timeout, at 100 µs each. With the default TTL that last limit is above 1,000 locks; with a TTL of
// 1 s it is 500 locks. A MultiLock sends all requests for a node at once, so each further lock
// slows its calls.
func New(members []quorumlock.Locker, opts ...quorumlock.Option) (*Mutex, error) {
	if len(members) == 0 {
		return nil, errs.Misuse("quorumlock: multilock.New: no members: give at least one lock")
	}
	locks := make([]*client.Lock, len(members))
	names := make([]string, len(members))
	for i, l := range members {
		lock, ok := client.Of(l)
		if !ok {
			return nil, errs.Misusef("quorumlock: multilock.New: member %d is a %T: use a lock of package node, redlock or multilock", i+1, l)
		}
		if locks[i] = lock; lock == nil {
			return nil, errs.Misusef("quorumlock: multilock.New: member %d is nil or a zero %T: make it with the Mutex method of a client or node", i+1, l)
		}
		names[i] = l.Name()
	}
	set, err := inherit(locks, opts)
	if err != nil {
		return nil, err
	}
	lock, err := client.All(strings.Join(names, " + "), locks, set)
	if err != nil {
		return nil, err
	}
	return &Mutex{client.NewMember(lock), lock}, nil
}

// inherit returns the settings of opts over the defaults of the members' clients, which must agree.
func inherit(locks []*client.Lock, opts []quorumlock.Option) (options.Settings, error) {
	clients := client.ClientsOf(locks)
	set, err := options.Inherit(clients[0].Defaults(), opts)
	switch {
	case err != nil:
		return set, err
	case set.Quorum != 0:
		return set, errs.Misuse("quorumlock: WithQuorum is for package redlock: a MultiLock needs every member")
	case set.Prefix != "":
		return set, errs.Misuse("quorumlock: WithPrefix is for the members of a MultiLock: give it to their client")
	case set.Label != settings.DefaultLabel():
		return set, errs.Misuse("quorumlock: WithLabel is for the client of a MultiLock's first member: give it to redlock.New")
	}
	for _, c := range clients[1:] {
		other, err := options.Inherit(c.Defaults(), opts)
		if err != nil {
			return set, err
		}
		if d := options.Difference(&set, &other); d != "" {
			return set, errs.Misusef("quorumlock: multilock.New: the clients of the members differ: %s: give the option to multilock.New, or use clients that agree", d)
		}
	}
	return set, nil
}

// Name returns the names of the members, joined by " + ".
func (m *Mutex) Name() string { return m.lock.Name() }

// Lock acquires all members. It waits for its turn until ctx is done. See [quorumlock.Locker] for
// its errors, and for the state of the nodes after a failure.
func (m *Mutex) Lock(ctx context.Context) (*quorumlock.Lease, error) { return m.lock.Lock(ctx) }

// TryLock acquires all members without waiting for its turn. See [quorumlock.Locker].
func (m *Mutex) TryLock(ctx context.Context) (*quorumlock.Lease, error) { return m.lock.TryLock(ctx) }
