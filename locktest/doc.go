// Package locktest tests programs that use locks, without Redis.
//
// [New] returns a lock in memory, to be given to the code under test in place of a redlock.Mutex. So the code should take a
// [quorumlock.Locker], or a function that returns one for a name, and not a redlock.Client. A test makes happen what is rare on
// real nodes:
//
//	lock := locktest.New("invoice:1042")
//	release := lock.Hold()              // somebody else has it
//	lock.Lose()                         // the holder loses its lease
//	lock.Delay(300 * time.Millisecond)  // the nodes are slow
//	lock.Fail(&quorumlock.QuorumError{Needed: 3}) // the nodes are down
//
// [AllUnlocked] fails a test that leaves a lease behind. [Locks] has locks by name, for code that takes a function that returns them.
//
// It works inside a testing/synctest bubble, where a TTL of ten seconds takes no time.
//
// [Conformance] is for those who write a [quorumlock.Locker] of their own: it checks what the interface promises.
//
// Package locktest/nodetest starts real nodes inside the test, whose network a test can break. It is apart because it
// needs a Redis in Go, which this package does not.
package locktest
