// Package quorumlock is a distributed lock over N independent Redis nodes. It is for services that must do
// one thing at a time across a fleet, and keep doing so while nodes die, restart, stall or have their clocks
// stepped.
//
//	client, err := redlock.Dial(urls) // three or five servers that do not replicate each other
//	...
//	err = quorumlock.Do(ctx, client.Mutex("myapp:lock:invoice:1042"), func(ctx context.Context) error {
//		return charge(ctx) // ctx is cancelled when the lock is lost
//	})
//
// This package has the vocabulary that all kinds of locks share. The locks are in its siblings: package
// redlock (a majority of nodes), package multilock (all of several locks) and package node (one Redis).
//
// # What is promised
//
// N is the number of a lock's nodes, and Q is how many of them must grant it: the quorum, a majority unless
// [WithQuorum] says otherwise. A node forgets when it restarts without its data, evicts keys, is flushed or
// has its clock stepped. At most f = 2Q − N − 1 nodes may forget: none with a plain majority of an odd N, and
// two with 4 of 5.
//
// An owner holds a lock for as long as its lease is valid:
//
//	validity = TTL − elapsed − drift          drift = 1 % × TTL + 2 ms
//
// Elapsed counts from before the first request is sent. [WithDrift] sets another drift.
//
//  1. Mutual exclusion: no two owners hold valid leases of one lock while at most f nodes forget and the rates
//     of the clocks stay within the drift. Readers share a read-write lock with each other, and with nobody
//     else. For a semaphore this holds for each of its slots. Under [WithRestartGuard] restarts do not count.
//     No release that comes late, no message that somebody else publishes, and no unusual name or owner can
//     end, shorten or fake a hold. Whoever may write the lock's keys is trusted; whoever may only publish or
//     subscribe is not.
//  2. Nobody gets a lease whose validity is over.
//  3. The holder learns of a loss by the end of the validity. [Lease.Context] ends then. Its cause is a
//     *[LostError], which is [ErrLost] and says why the lease was lost and which nodes failed. This does not
//     wait for any network call. If the machine itself was suspended, it takes up to a second more.
//  4. Fencing tokens, see [Lease.Token], are unique and rise with every grant, across processes and node
//     failures. They also rise after a name was idle for days, and whatever the clocks of the clients say, as
//     long as the clocks of the nodes agree within hours: a node accepts no client's hint that is more than an
//     hour ahead of its own clock. Readers of a read-write lock share tokens: theirs are at least that of the last writer
//     before them, and lower than that of the next. Each slot of a semaphore has its own tokens. If too
//     many nodes lose their counters, token order depends on clocks: keep NTP running.
//  5. A call that failed, was cancelled or timed out leaves nothing behind but token counters, which are kept
//     for about a day, and for years where clients of Redisson's use the lock, too. A node that was frozen, cut
//     off, restarted or failed over is clean within two seconds after it answers, however long it was away. If
//     the client has died or was closed, a key ends with its TTL, and an entry in the queue ends without
//     refreshes.
//  6. No script takes effect twice because its reply was lost.
//  7. Nobody can release, extend or shorten somebody else's hold, with one exception. ForceUnlock frees a
//     lock, whoever holds it, but it never deletes a key that is not a lock. (Node.Renew and Node.Release of
//     package node trust the owner that they are given, but refuse the owners of leases.)
//  8. A slow or dead node costs nothing while the others are a quorum. It delays nobody, waiters included. A node
//     that was frozen, cut off, restarted or failed over counts again within two seconds after it answers,
//     whatever requests were sent to it before, and however long it was away. A failed release stays pending
//     until the node has confirmed it. A client keeps up to 16,384 pending releases for each node.
//  9. Waiters are served in the order in which they called Lock, whichever process they are in. Between
//     processes, this holds for calls seconds apart, even if a client's clock is wrong, while the clocks of most
//     nodes agree. A handoff costs the same for 4 waiters and for 256. A lock that becomes free by expiry is
//     passed on within two seconds, however many dead waiters are queued.
//  10. Of contenders who TryLock a free lock at the same time, one gets it.
//  11. Java clients (Redisson) and clients of this library share a lock fairly, without an option: while both
//     wait, neither side gets less than about a third of the grants. See docs/redisson.md.
//
// # What is not promised
//
// No lock service can stop a holder that is paused past its lease by a garbage collector, a hypervisor or a
// slow disk. It wakes up and writes. Only the resource itself can refuse that write, by its fencing token: send
// the token along with every write, and let the resource compare it. Package fence does that for SQL databases, Redis
// and HTTP services.
//
// Redisson's clients do not know the queue, so they may overtake those who wait in it. Promise 9 is about the
// waiters of this library.
package quorumlock
