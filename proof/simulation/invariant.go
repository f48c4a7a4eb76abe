package simulation

// The invariants. Each is checked in every run to which it applies.
const (
	// At most one valid holder at a time, while no more nodes forget than the quorum allows for and
	// clocks keep to the drift. A holder is valid until the time of its lease, in true time.
	// Holders that share a lock count as one.
	mutualExclusion = "mutual exclusion"

	// A lease lasts no longer than promised by a quorum of the nodes, in grants or renewals made
	// after the start of the validity; for a MultiLock, by a quorum of each of its members.
	backed = "backed by a quorum"

	// No lease is granted with its validity over.
	notOver = "no lease that is over"

	// A grant's token is unique, and higher than those of all earlier grants. When more nodes have
	// lost their counters than the quorum allows for, only grants returned before this attempt
	// began are earlier. A share has no token of its own: its token is at least that of every
	// earlier exclusive holder, and lower than that of every later one.
	tokensUnique = "tokens are unique"
	tokensRise   = "tokens rise"

	// A store that refuses lower tokens accepts no write of an earlier grant after one of a later
	// grant, even if its holder wakes up late. It accepts all writes of a valid holder. The same
	// holds for reads by sharers.
	noOldWrite  = "the store takes no old write"
	holderWrite = "the store takes the holder's write"

	// The context of a lost lease ends by the lease's deadline, and its Unlock returns ErrLost.
	lossTold = "loss is told by the deadline"

	// Each call of an owner runs at most once at a node.
	once = "nothing takes effect twice"

	// No script changes the count, the TTL or the token counter of another owner's hold. No script
	// removes another waiter with time left from the queue.
	othersHold  = "nobody else's hold is touched"
	othersPlace = "nobody else's entry is touched"

	// A node refuses nobody for a share that is over: a dead reader delays a writer for a TTL at
	// most, even while others share the lock.
	overIsOver = "nobody waits for a share that is over"

	// A sharer that asks to hold the lock alone is refused at once.
	noUpgrade = "nobody waits for itself"

	// A node confirms only the holder.
	yesToHolder = "no grant without a key"

	// No node grants a lock past a waiter with a lower ticket and time left, unless both share it.
	// A ticket is the time of the call.
	ticketOrder = "in ticket order"

	// While nothing fails, the callers of one lock in one process get the lock in the order of
	// their calls. Readers share the lock, and have no order.
	callOrder = "in the order of the calls"

	// While nothing fails, nobody cancels and no MultiLock is used, a TryLock is refused only if
	// another caller has the lock or is just getting it. If several try to get a free lock at the
	// same time, one gets it.
	oneWins = "one of those who try gets it"

	// Soon after a call has returned, no key and no entry of its attempts is left at a reachable
	// node. At the end, only token counters and the guard's note of an age are left.
	nothingLeft  = "nothing is left behind"
	nothingStays = "nothing outlives its TTL"

	// A call returns by its deadline or its node timeouts.
	inTime = "every call returns in time"

	// Lock returns an error only when it may not wait any longer.
	ridesOut = "Lock rides out what fails"

	// While nothing fails, no lease is lost, no call fails, and the next waiter gets a released
	// lock without waiting for a refresh.
	nothingFails = "nothing fails while nothing is wrong"
	promptly     = "the next waiter is told"

	// Nothing fails, a patient caller waits for a lock or a MultiLock, and neither it nor a caller
	// that contends with it waits for a holder. Then one of them is granted its lock within 20 ms
	// plus the time of 40 messages.
	goesOn = "somebody is granted in so many round trips"

	// When all nodes are well, a caller acquires the lock within two seconds, after any earlier
	// requests. The keys of dead processes expire first.
	acquires = "somebody acquires"

	// Entering a hold again counts, and keeps owner and token; leaving it releases nothing.
	reentrancy = "re-entrancy"

	// Close returns, and no goroutine is left after it.
	noGoroutineLeft = "no goroutine is left"

	// A latch is a single set of ids that only grows: such a set would allow some order of all
	// calls. A Done that failed may add its id at any later time, or never. When Done returns nil,
	// a quorum has its id. While no more nodes forget than the quorum allows for, no call reports
	// the latch as forgotten.
	oneSet       = "a latch is one set that grows"
	quorumHas    = "a quorum has what is done"
	notForgotten = "no latch is forgotten"

	// A Wait ends soon after the latch is open and all is well; if nothing fails, at the message.
	waitEnds = "a Wait ends when the latch is open"
	waitTold = "a Wait is told"

	// A detached hold goes on in at most one process, with its token, and not after another owner
	// has had the lock (tokens rise).
	attachedOnce = "a hold is attached once"

	// The simulation itself is in order.
	sound = "the simulation is sound"
)
