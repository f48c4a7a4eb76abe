// Package locktest tests programs that use locks, without Redis.
//
// [New] returns a lock in memory, to pass to the code under test in place of a redlock.Mutex. So
// the code should take a [quorumlock.Locker], or a function that returns one for a name, and not a
// redlock.Client. A test can cause events that are rare on real nodes:
//
//	lock := locktest.New("invoice:1042")
//	release := lock.Hold()              // another owner has it
//	lock.Lose()                         // the holder loses its lease
//	lock.Delay(300 * time.Millisecond)  // the nodes are slow
//	lock.Fail(&quorumlock.QuorumError{Needed: 3}) // the nodes are down
//
// [AllUnlocked] fails a test that leaves a lease behind. [Locks] has locks by name, for code that
// takes a function.
//
// It works inside a testing/synctest bubble, where a TTL of ten seconds takes no time.
//
// [Conformance] checks an implementation of [quorumlock.Locker] against the interface.
//
// Package locktest/nodetest starts real nodes inside the test, with a network that the test can
// break. It is a package of its own because it needs a Redis in Go, which this package does not.
//
// # Other kinds of locks
//
// A redlock.RWMutex, its RLocker and a redlock.Semaphore are Lockers. For code that only locks
// them, New is enough. Code that calls their other methods, or uses a redlock.Latch, an
// election.Election or the Attach of a client, needs a client of nodetest:
//
//	nodes := nodetest.Start(t, 3)
//	lock, other := nodes.Client().RWMutex("catalogue"), nodes.NewClient() // other is another process
//	reader, err := other.RWMutex("catalogue").RLock(ctx) // another owner has it
//	err = other.ForceUnlock(ctx, "catalogue")            // the holder loses its lease
//	nodes.Kill(1, 2)                                     // the nodes are down
//
// There is no second implementation of these kinds in memory: their rules are in the scripts of the
// nodes, and a copy of the rules would pass tests that the real ones fail. In a synctest bubble, the
// nodes take no time, either. The example Kinds has a test with each kind.
package locktest
