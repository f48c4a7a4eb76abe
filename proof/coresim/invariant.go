package coresim

// The invariants. They are those of package simulation, with the same names and the same meaning, where this tier can
// see them; what the shell does alone, such as re-entrancy, is left to the wire tier.
const (
	// At most one valid holder at a time, while no more nodes forget than the quorum allows for and clocks keep to
	// the drift. A holder is valid until its machine says so, in true time. Those who share a lock are one holder in this.
	mutualExclusion = "mutual exclusion"

	// A lease lasts no longer than a quorum of the nodes have promised, in a grant or renewal that they gave after
	// the time from which the validity counts; for a MultiLock, of each of its members.
	backed = "backed by a quorum"

	// Nobody is given a lease whose validity is over.
	notOver = "no lease that is over"

	// A grant's token is nobody else's, and higher than those of all earlier grants. If more nodes have lost
	// their counters than the quorum allows for, only grants that were returned before this attempt began are earlier,
	// and handoffs have no order: a handoff counts on from the nodes' counters, and a late call may have set these since,
	// from the clock as it was when the call was sent. The token of somebody who shares a lock is at least that of everybody
	// who had it alone before, and lower than that of everybody who has it alone later.
	tokensUnique = "tokens are unique"
	tokensRise   = "tokens rise"

	// The holder of a lost lease is told by the deadline of the lease.
	lossTold = "loss is told by the deadline"

	// What an owner sends once runs at most once at a node.
	once = "nothing takes effect twice"

	// No script changes the count, the TTL or the token counter of another owner's hold, nor removes a waiter from
	// the queue whose entry has time left.
	othersHold  = "nobody else's hold is touched"
	othersPlace = "nobody else's entry is touched"

	// A node refuses nobody for the sake of a share that is over.
	overIsOver = "nobody waits for a share that is over"

	// A node says yes only to the holder.
	yesToHolder = "no grant without a key"

	// No node grants a lock past a waiter with a lower ticket whose entry has time left, unless both share it.
	ticketOrder = "in ticket order"

	// While nothing fails, the callers of one lock in one process get the lock in the order of
	// their calls. Readers share the lock, and have no order.
	callOrder = "in the order of the calls"

	// While nothing fails, nobody cancels and no MultiLock is used, a TryLock is refused only if somebody has the lock
	// or is just getting it.
	oneWins = "one of those who try gets it"

	// Soon after a call has returned, no key and no entry of its attempts is left at a node that was
	// reachable meanwhile; soon after the node can be reached again, if it was not. At the end, none is left anywhere
	// but token counters, and the guard's note of a promotion.
	nothingLeft  = "nothing is left behind"
	nothingStays = "nothing outlives its TTL"

	// A call returns by its deadline or its node timeouts.
	inTime = "every call returns in time"

	// Lock returns an error only when it may not wait any longer.
	ridesOut = "Lock rides out what fails"

	// No machine reports "no quorum" if a quorum has been well since its call began.
	minority = "a minority is no outage"

	// While nothing fails, no lease is lost, no call fails, and the next waiter gets a released lock without waiting
	// for a refresh.
	nothingFails = "nothing fails while nothing is wrong"
	promptly     = "the next waiter is told"

	// The machine reports a renewal without a quorum, once until there is a quorum again.
	lateTold = "a late renewal is reported"

	// A renewal is decided once.
	roundsOnce = "a renewal is decided once"

	// A node that has lost the key of a hold gets it back by the second renewal after that, unless somebody else has the
	// lock there.
	restored = "a node gets back what it has lost"

	// When all nodes are well, somebody acquires within two seconds, whatever requests came before. The keys of dead processes and
	// of UnlockAfter expire first.
	acquires = "somebody acquires"

	// A lock that Unlock leaves for a while is nobody else's in that time, if the Unlock was confirmed.
	keptOn = "what is kept is kept"

	// A detached hold goes on in one process at most, with its token, and not after anybody else has had the lock (tokens rise).
	attachedOnce = "a hold is attached once"

	// A machine does not ask the nodes again and again without a pause.
	noStorm = "a machine does not spin"
)
