package coresim

// The invariants. Those of package simulation have the same name and meaning here, as far as this
// tier can see them. The wire tier checks the features of the shell alone, such as re-entrancy.
const (
	// At most one valid holder at a time, while no more nodes forget than the quorum allows for and
	// clocks keep to the drift. A holder is valid until the time of its machine, in true time.
	// Holders that share a lock count as one.
	mutualExclusion = "mutual exclusion"

	// A lease lasts no longer than promised by a quorum of the nodes, in grants or renewals made
	// after the start of the validity; for a MultiLock, by a quorum of each of its members.
	backed = "backed by a quorum"

	// No lease is granted with its validity over.
	notOver = "no lease that is over"

	// A grant's token is unique, and higher than those of all earlier grants. If more nodes have
	// lost their counters than the quorum allows for, only grants returned before this attempt
	// began are earlier. Handoffs then have no order: a handoff counts on from the nodes' counters,
	// and a late call may have set these since, from the clock as it was when the call was sent.
	// The token of a share is at least that of every earlier exclusive holder, and lower than that
	// of every later one.
	tokensUnique = "tokens are unique"
	tokensRise   = "tokens rise"

	// The holder of a lost lease is notified by the deadline of the lease.
	lossTold = "loss is told by the deadline"

	// Each call of an owner runs at most once at a node.
	once = "nothing takes effect twice"

	// No script changes the count, the TTL or the token counter of another owner's hold. No script
	// removes another waiter with time left from the queue.
	othersHold  = "nobody else's hold is touched"
	othersPlace = "nobody else's entry is touched"

	// A node refuses nobody for a share that is over.
	overIsOver = "nobody waits for a share that is over"

	// A node confirms only the holder.
	yesToHolder = "no grant without a key"

	// No node grants a lock past a waiter with a lower ticket and time left, unless both share it.
	ticketOrder = "in ticket order"

	// While nothing fails, the callers of one lock in one process get the lock in the order of
	// their calls. Readers share the lock, and have no order.
	callOrder = "in the order of the calls"

	// While nothing fails, nobody cancels and no MultiLock is used, a TryLock is refused only if
	// another caller has the lock or is just getting it.
	oneWins = "one of those who try gets it"

	// Soon after a call has returned, no key and no entry of its attempts is left at a reachable
	// node. At a node that was not reachable, the same holds soon after it is again. At the end,
	// only token counters and the guard's note of an age are left.
	nothingLeft  = "nothing is left behind"
	nothingStays = "nothing outlives its TTL"

	// A call returns by its deadline or its node timeouts.
	inTime = "every call returns in time"

	// Lock returns an error only when it may not wait any longer.
	ridesOut = "Lock rides out what fails"

	// No machine reports "no quorum" if a quorum has been well since its call began.
	minority = "a minority is no outage"

	// While nothing fails, no lease is lost, no call fails, and the next waiter gets a released
	// lock without waiting for a refresh.
	nothingFails = "nothing fails while nothing is wrong"
	promptly     = "the next waiter is told"

	// An attempt gives its places back, whatever became of it.
	placesBack = "a place returns"

	// The machine reports a renewal without a quorum, once until there is a quorum again.
	lateTold = "a late renewal is reported"

	// A step begins and ends in phases that follow each other in the core's table.
	inTable = "phases follow the table"

	// A renewal is decided once.
	roundsOnce = "a renewal is decided once"

	// A node that has lost the key of a hold gets it back by the second renewal after that, unless
	// another owner has the lock there.
	restored = "a node gets back what it has lost"

	// When all nodes are well, a caller acquires the lock within two seconds, after any earlier
	// requests. The keys of dead processes and of UnlockAfter expire first.
	acquires = "somebody acquires"

	// Nothing fails, a patient caller waits for a lock or a MultiLock with no other holder, and no
	// caller before it waits for a holder. Then this caller, or one that contends with it, is
	// granted its lock within 20 ms and 40 messages. After a kept lock, that takes a refresh more.
	goesOn = "somebody is granted in so many round trips"

	// A lock that a confirmed Unlock leaves for a while is granted to nobody else in that time.
	keptOn = "what is kept is kept"

	// The calls on a latch are linearizable: one order of them fits a single set of ids that only
	// grows. A Done that failed may add its id at any later time, or never. A caller's latch never
	// has fewer ids than it had, however many nodes forget. When Done returns nil, a quorum has its
	// id. A call reports the latch as forgotten only if more nodes forget than the quorum allows
	// for. When all nodes are well, each id is added soon, and the latch opens.
	oneSet       = "a latch is one set that grows"
	quorumHas    = "a quorum has what is done"
	notForgotten = "no latch is forgotten"
	waitEnds     = "a Wait ends when the latch is open"

	// A detached hold goes on in at most one process, with its token, and not after another owner
	// has had the lock (tokens rise).
	attachedOnce = "a hold is attached once"

	// While callers and Redisson clients compete for a lock all the time, each side has at least a
	// fifth of the grants.
	bothServed = "Redisson's clients and callers share a lock"

	// A machine does not ask the nodes again and again without a pause.
	noStorm = "a machine does not spin"

	// Without a change, a caller makes at most 50 attempts plus one a millisecond. A change is a
	// grant, a release, a loss, a downgrade, the start or end of a call or of a fault, or a member
	// that a Redisson client takes or releases.
	paced = "a waiter asks at the pace of changes"
)
