// Package simulation runs the library under hostile schedules and checks what is promised. One seed
// makes one schedule.
//
//	go test ./proof/simulation                          a sample of seeds
//	go test ./proof/simulation -run Seeds -seeds 100000 -timeout 60m
//	go test ./proof/simulation -run Seeds -seed 42      one seed, with its trace
//	go test ./proof/simulation -run TestMutexes -planted all -v     checks the order of the mutexes
//	go test ./proof/planted -run Planted -planted all -v -timeout 60m     builds the library with every planted bug
//	go test ./proof/simulation -run Seeds -seeds 1000000 -from $(date +%s)000000 -timeout 8h     nightly
//
// A seed that fails is shown with its trace, after everything has been taken away that it does not
// need to fail, and with the command that runs it again. Package planted lists the bugs that this
// simulation must notice. A plain run only compares them with the code. The nightly workflow builds
// the library with each of them.
//
// # What is real
//
// The library as a program imports it: redlock, multilock, node, the engine, and its Lua; go-redis;
// and miniredis behind redis.call. All of it runs in a bubble of testing/synctest, where time
// passes only when everybody waits.
//
// # What is simulated
//
//   - The network (path.go, conn.go): every message has a delay of its own; some take much longer,
//     vanish, or have their reply lost after the script ran, with the connection hanging or reset.
//     A path from a process to a node is cut, both ways or one, or holds back what is sent and
//     delivers it late.
//   - Nodes (node.go): each on a clock with an offset and a rate, that is stepped. They crash and
//     come back with all, some or none of their data, freeze and run late what came meanwhile, lose
//     keys, forget their scripts.
//   - Forgers (node.forge): they may publish and no more, and send waiters handoffs that no node
//     made.
//   - Processes (process.go, worker.go): each has a client, paths and a wall clock of its own,
//     which is wrong, in some by days or a year, and is stepped. They lock, try, wait for two locks
//     at once, enter again, extend, cancel at any moment and as their turn comes, sleep while they
//     hold and write late, are paused, and die. In some plans a day without a call follows, and
//     then every process locks once.
//   - Rushes (rush.go), at the end of a plan in which nothing fails: several try to get a free lock
//     at the same time.
//   - Readers (readers.go), in one plan of four: they share a lock, alone or as a member of a
//     MultiLock, read late, and ask to become writers; writers become readers. Callers of a
//     semaphore (slots.go) are in one of four, too.
//   - A crowd, in one plan of 25: one process has 8 to 12 more callers of one lock, some of which
//     give up.
//   - Addresses (node.several) that lead to two servers for a while, which take turns with the
//     connections.
//   - A process with Redisson, the Java client (java.go), in one plan of twenty, where nothing
//     fails: its locks allow for no drift, check no validity, learn of no loss and have no tokens,
//     so under faults nobody could tell how long Java holds a lock. It does not queue, so the next
//     waiter may be late and a rush may have no winner.
//   - Callers of a latch (latch.go), in one plan of six, whose calls porcupine checks (history.go).
//     In half of those in which something fails, the nodes that a process can reach keep changing,
//     often to a single one. A latch promises nothing if more nodes forget than may, so such plans
//     have none.
//
// A plan (plan.go) is calm, so that nothing fails; bounded, so that no more nodes forget than the
// quorum allows for and the clocks keep to the drift; or beyond that. Some of the bounded plans are
// under the restart guard: then any number of nodes may restart without their data, too, or be
// replaced by a replica. The invariants (invariant.go) say what each kind of plan must keep. They
// are checked at every script that runs (watch.go), at every grant (hold.go), at the end of every
// call (worker.go), now and then (watch.audits), and at the end (world.end).
//
// # What is not
//
//   - A paused process: nothing leaves or reaches it, and its workers stand still. Its timers do
//     not stand still with it. That they fire late, after a suspend, is what the tests of
//     internal/quorum look at.
//   - Nodes that drop out one after another for a moment, and the cost of silent nodes: tests of
//     redlock and slotsim have them. MultiLocks over two quorums. Ids of a latch that are added
//     more than a retention apart.
//   - With the restart guard, client clocks that differ, and replicas with outdated keys: a replica
//     only lacks some.
//   - A clock of a process that runs at another rate: only the rates of the nodes differ, and the
//     drift counts the difference.
//   - Connecting takes no time: a frozen node either refuses connections, or takes them at once, as
//     a proxy would. As in go-redis, an idle connection is replaced unseen if its node goes away.
//     Tests on real servers cover TLS, sentinels and clusters.
//   - Lua is run in states that are kept (internal/locktest/embedded/redislua), not by miniredis: a
//     test compares the two.
//
// # Determinism
//
// What happens to a message is decided by the seed and by what the message is, not by when it is
// sent; owners are named by the order of their calls; what happens at one instant is sorted. Where
// the library itself leaves something to the scheduler, at one instant, a trace may differ:
// TestSameSeedHasTheSameTrace says how it is checked.
package simulation
