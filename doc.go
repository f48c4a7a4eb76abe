// Package quorumlock is a distributed lock over N independent Redis nodes, for services that must run
// one thing at a time across a fleet and keep doing so while nodes die, restart, stall or have their
// clocks stepped.
//
//	var nodes []*node.Node
//	for _, url := range urls { // three or five servers that do not replicate each other
//		n, err := node.Dial(url)
//		...
//		nodes = append(nodes, n)
//	}
//	client, err := redlock.New(nodes)
//	...
//	err = quorumlock.Do(ctx, client.Mutex("invoice:1042"), func(ctx context.Context) error {
//		return charge(ctx) // ctx is cancelled when the lock is lost
//	})
//
// This package has the words that all kinds of locks share; the locks are in its siblings: package
// redlock (a majority of nodes), package multilock (all of several locks) and package node (one Redis).
//
// # What is promised
//
// A lock is held by an owner, for as long as its lease is valid:
//
//	validity = TTL − elapsed − drift          drift = 1 % × TTL + 2 ms, see [Drift]
//
// where elapsed counts from before the first request was sent.
//
//  1. Mutual exclusion, while at most 2Q−N−1 of the nodes forget, by a restart without data, an eviction,
//     a flush or a stepped clock, and the rates of the clocks stay within the drift. With a plain majority
//     Q of an odd N that is none; with 4 of 5 it is two. Under [WithRestartGuard] restarts do not count.
//  2. Nobody is given a lease whose validity is over.
//  3. The holder is told of a loss by the end of the validity, by [Lease.Context], whose cause is then
//     [ErrLost]; that waits for no network call. After the machine itself was suspended, it takes up to a
//     second more.
//  4. Fencing tokens, see [Lease.Token], are unique and rise with every grant, across processes and node
//     failures. Where more nodes have lost their counters than may forget, as under the guard, they rise as the
//     clocks of the clients do.
//  5. A call that failed, was cancelled or timed out leaves nothing behind: no key, no place in line, no
//     goroutine. At a node that cannot be reached, what was left is gone at its TTL.
//  6. No script takes effect twice because its reply was lost.
//  7. Nobody can release, extend or shorten somebody else's lock.
//  8. A slow or dead node costs nothing while the others are a quorum.
//  9. Those who wait are served in the order of their tickets, and what a handoff costs does not grow with
//     their number.
//
// # What is not promised
//
// No lock service can stop a holder that does not look: one that is paused, by a garbage collector, a
// hypervisor or a slow disk, wakes up after its lease and writes. Only the resource itself can refuse that
// write, by the fencing token. Send it along, and compare.
package quorumlock
