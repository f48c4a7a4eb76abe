// Package election elects one leader among many candidates, over the nodes of a redlock.Client. The
// leader has a value, such as its address, for the others to read and observe.
//
//	e := election.New(client.Mutex("myapp:leader"), "10.0.0.7:8080")
//	err := e.Run(ctx, func(ctx context.Context) error {
//		return serve(ctx) // ctx is cancelled before another candidate can lead
//	})
//
//	for leader, err := range e.Observe(ctx) { ... } // at each change
//
// The leader is the holder of the lock. Candidates wait in the lock's queue. See package quorumlock
// for the promises, and [Term.Token] for the protection from a leader that is paused past its
// lease.
//
// # Why it is sound
//
//  1. One leader: a term has the lease of the lock, so two valid terms would be two valid leases of
//     one lock.
//  2. Loss in time: the context of a term descends from the context of its lease. The latter is
//     cancelled at the lease's own deadline, before the nodes grant the lock to another owner,
//     without waiting for a network call. After a pause, each call of the term first compares the
//     clock with that deadline.
//  3. Drain first: the lock is released after the lead function has returned. If that takes longer
//     than a TTL, the lock is released first, and only the fencing token separates the two leaders.
//  4. Only a leader has a value: a node accepts the value only from the present holder of the lock,
//     and only if no higher token has written. It refuses the late write of a former leader.
//  5. A value counts at a node only while its writer holds the lock there, for any TTL of its key.
//     So the value ends with the hold: with the release, with the key of the lock, and with the
//     next holder.
//  6. Sure means a quorum: any two quorums share a node. So while one leader is sure, no other
//     owner has a quorum. After a Proclaim or Resign has returned nil, no later call returns the
//     former state as sure.
//  7. An answer counts as sure only while the key of the lock lasts longer than the drift. The
//     lease of a dead leader ends earlier than its keys: by the drift, and by the time that the
//     last renewal took to the node.
//  8. Observe reads the nodes at each message, and at the expiry of the keys. A message during a
//     read causes one more read. So Observe never misses the last change, even if messages are
//     forged, lost or delayed.
//
// As with the lock, 1, 4 and 6 hold while at most 2Q − N − 1 nodes forget.
//
// docs/election.md has the corresponding calls of etcd, client-go and Curator.
package election
