package simulation

// The invariants. Each is checked in every run to which it applies.
const (
	// At most one valid holder at a time, while no more nodes forget than the quorum allows for and clocks keep to
	// the drift. A holder is valid until its lease says so, in true time. Those who share a lock are one holder in this.
	mutualExclusion = "mutual exclusion"

	// A lease lasts no longer than a quorum of the nodes have promised, in a grant or renewal that they gave after
	// the time from which the validity counts; for a MultiLock, of each of its members: all or nothing.
	backed = "backed by a quorum"

	// Nobody is given a lease whose validity is over.
	notOver = "no lease that is over"

	// A grant's token is nobody else's, and higher than those of all earlier grants. When more nodes lost their
	// counters than the quorum allows for, earlier grants are those that were returned before this attempt began. Those
	// who share a lock have no token of their own: theirs is at least that of everybody who had it alone before, and lower than
	// that of everybody who has it alone later.
	tokensUnique = "tokens are unique"
	tokensRise   = "tokens rise"

	// A store that refuses lower tokens takes no write of an earlier grant after one of a later, however late its
	// holder wakes up, and takes all of a valid holder's. The same holds for reads by those who share a lock.
	noOldWrite  = "the store takes no old write"
	holderWrite = "the store takes the holder's write"

	// The context of a lost lease ends by the deadline of the lease, and its Unlock says so.
	lossTold = "loss is told by the deadline"

	// What an owner sends once runs at most once at a node.
	once = "nothing takes effect twice"

	// No script changes the count, the TTL or the token counter of another owner's hold, nor removes a waiter from
	// the queue whose entry has time left.
	othersHold  = "nobody else's hold is touched"
	othersPlace = "nobody else's entry is touched"

	// A node refuses nobody for the sake of a share that is over: a dead reader delays a writer for a TTL at most, however
	// long others share the lock.
	overIsOver = "nobody waits for a share that is over"

	// Whoever shares a lock and asks to hold it alone is refused at once.
	noUpgrade = "nobody waits for itself"

	// A node says yes only to the holder.
	yesToHolder = "no grant without a key"

	// No node grants a lock past a waiter with a lower ticket whose entry has time left, unless both share it. A ticket is
	// the time of the call.
	ticketOrder = "in ticket order"

	// While nothing fails, the callers of one lock in one process get the lock in the order of
	// their calls. Readers share the lock, and have no order.
	callOrder = "in the order of the calls"

	// While nothing fails, nobody cancels and no MultiLock is used, a TryLock is refused only if somebody has the lock
	// or is just getting it. Of those who try to get a free lock at the same time, one gets it.
	oneWins = "one of those who try gets it"

	// Soon after a call has returned, no key and no entry of its attempts is left at a node that was
	// reachable meanwhile. At the end, none is left anywhere but token counters, and the guard's note of a promotion.
	nothingLeft  = "nothing is left behind"
	nothingStays = "nothing outlives its TTL"

	// A call returns by its deadline or its node timeouts.
	inTime = "every call returns in time"

	// Lock returns an error only when it may not wait any longer.
	ridesOut = "Lock rides out what fails"

	// While nothing fails, no lease is lost, no call fails, and the next waiter gets a released lock without waiting
	// for a refresh.
	nothingFails = "nothing fails while nothing is wrong"
	promptly     = "the next waiter is told"

	// When all nodes are well, somebody acquires within two seconds, whatever requests came before. The keys of dead processes
	// expire first.
	acquires = "somebody acquires"

	// Entering a hold again changes neither owner nor token, and counts; leaving it releases nothing.
	reentrancy = "re-entrancy"

	// Close returns, and no goroutine is left after it.
	noGoroutineLeft = "no goroutine is left"

	// A latch is a set of ids, in one place, that only grows: there is an order of all calls that such a set would allow. A Done
	// that failed may add its id at any later time, or never. When Done returns nil, a quorum has its id, and as long as no
	// more nodes forget than the quorum allows for, nobody says that it is forgotten.
	oneSet       = "a latch is one set that grows"
	quorumHas    = "a quorum has what is done"
	notForgotten = "no latch is forgotten"

	// A Wait ends soon after the latch is open and all is well; where nothing fails, as soon as it is told.
	waitEnds = "a Wait ends when the latch is open"
	waitTold = "a Wait is told"

	// A detached hold goes on in one process at most, with its token, and not after anybody else has had the lock (tokens rise).
	attachedOnce = "a hold is attached once"

	// The simulation itself is in order.
	sound = "the simulation is sound"
)
