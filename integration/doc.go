// Package integration has tests alone: the promises of quorumlock, checked on real Redis servers in
// containers.
//
// The tests need a Docker daemon on this machine. The servers run, in this order of choice,
//
//   - the image that QUORUMLOCK_REDIS_IMAGE names;
//   - the public one, redis:8, present or pulled;
//   - one built from the redis-server that is installed on this machine (see package redisimage).
//
// A run prints the name of its image, unless one was present. Without a daemon or an image, the
// tests that need servers are skipped; with QUORUMLOCK_REQUIRE_DOCKER=1 they fail. An unavailable
// image is a failure if it was named.
//
// A test is skipped if the version of the servers lacks the tested feature. docs/matrix.md has the
// results for each server, and .ci/servers runs the tests on several servers.
//
// A small library, built by the tests, steps the clocks of some servers. It needs Linux and a C
// compiler: cc, or the one that CC names. A process that outlives the run removes its containers,
// even if the run is killed.
//
// # Promises under faults
//
// A workload (workload_test.go, worker_test.go) is eight clients that lock, work, write to a store
// that checks fencing tokens, and unlock; some work past their lease. TestPromisesHoldUnderFaults
// strikes the nodes with one fault after the other meanwhile (faults_test.go; proxy_test.go and
// clock_test.go for those of the network and of clocks; failover_test.go). It checks these
// promises: one holder at a time, by the holders' own deadlines; tokens rise with every grant; the
// store accepts no stale token; a loss is reported by the deadline; calls return by theirs; the
// work goes on; no key and no goroutine is left. Where nodes forget, the quorum is four of five.
//
// Porcupine also checks the clients' history: it looks for a valid order of all operations
// (linear_test.go). A history without one is saved as a picture, for a browser, in the directory
// that QUORUMLOCK_HISTORIES names, or else in quorumlock-histories below the directory for
// temporary files. checker_test.go checks that the checkers refuse wrong histories.
//
// TestSoak mixes the faults at random, for a given time, and checks the same. In each strike, other
// workers use all kinds of locks, with names of their own; now and then a crowd comes. After each
// round, when all clients are closed, it measures the memory, goroutines and files of the process,
// and the connections, keys and memory of the servers; report_test.go says how much they may grow.
// In the end, no name may have left a key.
//
//	make soak FOR=30m
//
// runs it and writes a report, soak.md. It prints its seed; -soak-seed repeats the faults of one.
// Shorter soaks than half an hour do not judge growth. On a machine that is busy, give -soak-ttl 2s.
package integration
