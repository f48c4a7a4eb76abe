// Package quorumlock is a distributed lock over N independent Redis nodes. It is for services that
// must do one thing at a time across a fleet while nodes die, restart, stall or have their clocks
// stepped.
//
//	client, err := redlock.Dial(urls) // three or five servers that do not replicate each other
//	...
//	lock := client.Mutex("myapp:lock:invoice:1042")
//	err = quorumlock.Do(ctx, lock, func(ctx context.Context) error {
//		// ctx is cancelled when the lock is lost. It carries the fencing token.
//		return charge(ctx)
//	})
//
// This package has the vocabulary that all kinds of locks share. The locks are in other packages:
// redlock (a majority of nodes), multilock (all of several locks) and node (one Redis).
//
// # Promises
//
// N is the number of a lock's nodes. Q of them must grant the lock; Q is the quorum. The default is
// a majority; [WithQuorum] sets another. A node forgets when it restarts without its data, evicts
// keys, is flushed or has its clock stepped. At most f = 2Q − N − 1 nodes may forget: none with a
// plain majority of an odd N, and two with 4 of 5.
//
// An owner holds a lock for as long as its lease is valid:
//
//	validity = TTL − elapsed − drift          drift = 1 % × TTL + 2 ms
//
// Elapsed counts from just before the successful attempt, or the last successful renewal, was sent.
// [WithDrift] sets another drift.
//
//  1. Mutual exclusion: no two owners hold valid leases of one lock while at most f nodes forget
//     and clock rates stay within the drift. Readers share a read-write lock with readers only.
//     Each slot of a semaphore has one holder at a time. Under [WithRestartGuard], restarts
//     do not count as forgetting. A late release, a forged message, or an odd name or owner cannot
//     end, shorten or fake a hold. Clients with write access to the lock's keys are trusted.
//     Clients that may only publish or subscribe are not.
//  2. No call returns a lease after the end of its validity.
//  3. A lease is lost if no quorum renews it in time, or if its keys are gone. The holder learns of
//     a loss by the end of the validity: [Lease.Context] is cancelled. The cause is a *[LostError]
//     with the reason and the failed nodes, which matches [ErrLost]. No network call can delay
//     this. If the machine itself was suspended, the notice comes up to a second later.
//  4. Fencing tokens, see [Lease.Token], are unique and rise with every grant, across processes and
//     node failures. Tokens keep rising after a name has been idle for days. No client's clock can
//     break this: a node ignores a client's clock that differs from its own by more than a minute.
//     The nodes' clocks may differ from each other. A node forgets if its clock is set back by more
//     than a minute. Readers of a read-write lock share tokens: a reader's token is at least that
//     of the last writer before it, and lower than that of the next. Each slot of a semaphore has
//     its own tokens. If too many nodes forget, token order depends on clocks: keep NTP running. For
//     tokens, a restart that loses counters is forgetting under WithRestartGuard, too.
//  5. A call that failed, was cancelled or timed out leaves no lock and no queue entry. Only token
//     counters remain, for minutes, or for years if Redisson clients also use the lock. A node may
//     be frozen, cut off, restarted or failed over. Its leftovers are removed within two seconds of
//     its first answer, however long it was away. If the client has died or was closed, its keys
//     expire with their TTL, and its queue entries expire when they are no longer refreshed. A call
//     that a frozen node runs when it thaws counts for a whole TTL from then on. Shutdown returns
//     [ErrUnconfirmed] if a node may have kept anything.
//  6. A script whose reply is lost does not take effect twice.
//  7. No client can release, extend or shorten another owner's hold. The one exception is
//     ForceUnlock, which frees a lock of any holder, but never deletes a key that is not a lock.
//     (Node.Renew and Node.Release of package node trust the owner in their arguments, but refuse
//     the owners of leases.)
//  8. A slow or dead node costs nothing as long as the others form a quorum. It delays no caller,
//     waiters included. It counts again within two seconds after it answers, however long it was
//     away and whatever was sent to it before. A failed release stays pending until the node has
//     confirmed it. A refused one is retried until the lock's TTL, unless the key is no longer a
//     lock. A client queues at most 16,384 failed and 16,384 refused releases per node.
//  9. Waiters are served in the order of their calls of Lock, across processes. Between processes,
//     this holds for calls seconds apart, even if a client's clock is wrong, while the clocks of
//     most nodes agree. While nodes are busy, a Lock with less than 250 ms left may wait out its
//     deadline without sending a request. A handoff costs the same for 4 waiters as for 256. A lock
//     that becomes free by expiry is passed on within two seconds, however many dead waiters are
//     queued. After a handoff to a dead waiter it may take 37.5 ms longer for each dead waiter, up
//     to 30 seconds in all.
//  10. Of contenders that call TryLock for a free lock at the same time, one acquires it.
//  11. Java clients (Redisson) and clients of this library share a lock fairly, with no option to
//     set. While both wait, each side gets at least about a third of the grants of an RLock. The
//     share is smaller for Redisson's fair and spin locks, and for locks that need every node or
//     member. See docs/redisson.md.
//  12. Overload costs time, never goodput. A client sends only as many attempts as its nodes answer
//     promptly, in the order of the calls. The other calls wait in the process, and fail only by
//     their own deadlines. Two seconds after a stall ends, the grants per second are back at their
//     rate before it. New locks wait while renewals take more than half of a node's time.
//  13. The slowness of the process is never charged to a node. A node timeout begins with the
//     sending of a call, and with each answer of the node. Delays of the process's timers and
//     goroutines do not count. A validity never moves.
//  14. A name that is no longer used leaves nothing at the nodes. Its last key expires at most the
//     TTL plus five minutes after its last use. Latches are kept for their retention, and counters
//     shared with Redisson clients for years.
//
// # Limits
//
// No lock service can stop a holder that is paused past its lease by a garbage collector, a
// hypervisor or a slow disk. The holder wakes up and writes. Only the resource itself can refuse
// that write, by its fencing token: send the token with every write, and let the resource compare
// it. Package fence does that for SQL databases, Redis and HTTP services.
//
// Redisson clients do not know the queue, so they may overtake its waiters. Promise 9 covers the
// waiters of this library.
package quorumlock
