// Package election elects one leader of many candidates, over the nodes of a redlock.Client. The leader has a value, such as
// its address, that the others read and observe.
//
//	e := election.New(client.Mutex("myapp:leader"), "10.0.0.7:8080")
//	err := e.Run(ctx, func(ctx context.Context) error {
//		return serve(ctx) // ctx is cancelled before anybody else can lead
//	})
//
//	for leader, err := range e.Observe(ctx) { ... } // whoever leads, at each change
//
// To lead is to hold the lock. Candidates wait in its queue, are handed the lock, and learn of a loss as any holder does: see
// package quorumlock for what is promised, and [Term.Token] for what stops a leader that is paused past its lease.
//
// # Why it is sound
//
//  1. One leader: a term has the lease of the lock, so two valid terms would be two valid leases of one lock.
//  2. Told in time: the context of a term descends from that of its lease, which ends by the lease's own deadline, before
//     the nodes let anybody else have the lock. It waits for no network call. After a pause, each call of the term compares
//     the clock with that deadline first.
//  3. Drain first: the lock is released after the lead function has returned. If that takes longer than a TTL, the lock
//     goes on without it, and the fencing token alone keeps the two apart.
//  4. The value is only a leader's: it is written when the lock is won, and a node takes it only from the owner who holds
//     the lock there, and only if no higher token has written. A late write of a former leader is refused.
//  5. A value counts only while the owner who wrote it holds the lock at that node, whatever the TTL of its key. So it ends
//     with the hold: with the release, with the key of the lock, and with the next holder.
//  6. Sure means a quorum: any two quorums have a node in common. So while one leader is sure nobody else has a
//     quorum, and after a Proclaim or Resign has returned nil, no call that begins later gets the former state as sure.
//  7. An answer counts for sure only while the key of the lock lasts longer than the drift: the lease of a dead
//     leader ends that much before its keys. How long the renewal was under way to the node comes on top.
//  8. Observe reads the nodes at each message, and again when the keys that it saw expire. A message that comes during a
//     read causes one more read. So the last change is never missed, whoever forges, loses or delays messages.
//
// As with the lock, 1, 4 and 6 hold while at most 2Q − N − 1 nodes forget.
//
// # Coming from etcd, client-go and Curator
//
// docs/election.md says what corresponds to the elections of these.
package election
