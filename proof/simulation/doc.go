// Package simulation runs the library under hostile schedules and checks its promises. One seed
// makes one schedule.
//
//	go test ./proof/simulation                          a sample of seeds
//	go test ./proof/simulation -run Seeds -seeds 100000 -timeout 60m
//	go test ./proof/simulation -run Seeds -seed 42      one seed, with its trace
//	go test ./proof/simulation -run TestMutexes -planted all -v     the order of the mutexes
//	go test ./proof/planted -run Planted -planted all -v -timeout 60m     every planted bug
//	go test ./proof/simulation -run Seeds -seeds 1000000 -from $(date +%s)000000 -timeout 8h
//
// A seed that fails is shown with its trace, shrunk to the parts that its failure needs, and with
// the command that runs it again. Package planted lists the bugs that this simulation must notice.
// A plain run only compares them with the code. The nightly workflow builds the library with each
// of them.
//
// # Real parts
//
// The library as a program imports it: redlock, multilock, node, the engine, and its Lua; go-redis;
// and miniredis behind redis.call. All of it runs in a bubble of testing/synctest, where time
// passes only when all goroutines wait.
//
// # Simulated parts
//
//   - The network (path.go, conn.go): every message has its own delay; some take much longer,
//     vanish, or have their reply lost after the script ran, with the connection hanging or reset.
//     A path from a process to a node is cut, both ways or one, or holds messages back and delivers
//     them late.
//   - Nodes (node.go): each has a clock with an offset and a rate, which is stepped. They crash and
//     come back with all, some or none of their data, freeze and later run their backlog, lose
//     keys, forget their scripts.
//   - Bundles (node.script): the nodes of one plan in seven take them, and one process has more
//     callers. The calls of a bundle run one by one. The tests of scriptmodel show that bundle.lua
//     does the same.
//   - Forgers (node.forge): they may only publish, and send waiters handoffs that no node made.
//   - Processes (process.go, worker.go): each has its own client, paths and wall clock, which is
//     wrong, in some by days or a year, and is stepped. They lock, try, wait for two locks at once,
//     re-enter, extend, cancel at any moment and at their turn, sleep as holders and write late,
//     are paused, and die. In some plans, minutes and a day without a call follow, and after each
//     every process locks once.
//   - Rushes (rush.go), at the end of a plan in which nothing fails: several callers try to get a
//     free lock at the same time.
//   - Readers (readers.go), in one plan of four: they share a lock, alone or as a member of a
//     MultiLock, read late, and try to become writers; writers become readers. Callers of a
//     semaphore (slots.go) are in one of four, too.
//   - A crowd, in one plan of 25: one process has 8 to 12 more callers of one lock, some of which
//     give up.
//   - Big plans (big.go), about one of 100: up to 40 slots of a semaphore with about as many
//     callers; up to 40 callers of a MultiLock that shares x, 20 with faults or three members, some
//     of whom give up; or a latch with up to 80 ids that are added at about the same time.
//   - Addresses (node.several) that lead to two servers for a while; connections alternate between
//     them.
//   - A process with Redisson, the Java client (java.go), in about one plan of thirty, where nothing
//     fails. Its locks allow for no drift, check no validity, learn of no loss and have no tokens,
//     so under faults the end of a Java hold would be unknown. It does not queue, so the next
//     waiter may be late and a rush may have no winner.
//   - Processes of the version before (mix.go), in about one plan of thirty: they share all locks with
//     the others, with the scripts that count tokens in another way.
//   - Callers of a latch (latch.go), in one plan of six; fleet.IsSet checks their calls
//     (history.go). In half of the plans with faults, the nodes that a process can reach keep
//     changing, often to a single one. A latch promises nothing if more nodes forget than may, so
//     such plans have none.
//
// A plan (plan.go) is calm: nothing fails; bounded: no more nodes forget than the quorum allows
// for, and the clocks keep to the drift; or beyond that. Some of the bounded plans have the restart
// guard: any number of nodes may then restart without their data, or be replaced by a replica. The
// invariants (invariant.go) name the plans that they bind. They are checked at every script that
// runs (scripts.go), at every grant (hold.go), at the end of every call (worker.go), now and then
// (watch.audits, progress.go), and at the end (world.end).
//
// # Not covered
//
//   - A paused process: its messages and its workers stand still, but its timers do not. Tests of
//     internal/client cover timers that fire late, after a suspend.
//   - Nodes that drop out one after another for a moment, and the cost of silent nodes: tests of
//     redlock and coresim have them. MultiLocks over two quorums. Ids of a latch that are added
//     more than a retention apart.
//   - With the restart guard, client clocks that differ, and replicas with outdated keys: a replica
//     only lacks some.
//   - A process's clock that runs at another rate: only the rates of the nodes differ, and the
//     drift counts the difference.
//   - Connecting takes no time: a frozen node either refuses connections, or takes them at once,
//     like a proxy. As in go-redis, an idle connection is replaced unseen if its node goes away.
//     Tests on real servers cover TLS, sentinels and clusters.
//   - Lua runs in reused states (internal/testkit/embedded/redislua), not in miniredis: a test
//     compares the two.
//
// # Determinism
//
// The seed and the message decide the fate of a message, not the time at which it is sent. Owners
// are named by the order of their calls. Events of one instant are sorted. If the library itself
// leaves an order within one instant to the scheduler, traces may differ: see
// TestSameSeedHasTheSameTrace.
package simulation
