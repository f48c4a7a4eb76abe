// Package integration has tests alone: the promises of quorumlock, checked on real Redis servers in
// containers.
//
// The tests need a Docker daemon on this machine. The servers run, in this order of choice,
//
//   - the image that QUORUMLOCK_REDIS_IMAGE names;
//   - the public one, redis:8, present or pulled;
//   - one built from the redis-server that is installed on this machine (see package redisimage).
//
// A run prints which image it uses, unless one was present. Without a daemon or an image, the tests that need servers are
// skipped; with QUORUMLOCK_REQUIRE_DOCKER=1 they fail. An unavailable image is a failure if it was
// named.
//
// A test is skipped if the version of the servers lacks the tested feature. docs/matrix.md has the
// results for each server, and .ci/servers runs the tests on several servers.
//
// The clocks of some servers are stepped by a small library that the tests build: that takes Linux and a C
// compiler, cc or the one that CC names. Whatever happens to a run, a process that outlives it removes its containers.
//
// # Promises under faults
//
// A workload (workload_test.go, worker_test.go) is eight clients that lock, work, write to a store that checks
// fencing tokens, and unlock; some work past their lease. TestPromisesHoldUnderFaults has one fault after the
// other befall the nodes meanwhile (faults_test.go; proxy_test.go and clock_test.go for those of the network and
// of clocks; failover_test.go). Checked every time: one holder at a time, by the holders' own deadlines; tokens
// that rise with every grant; that the store takes nothing stale; that loss is told by the deadline, and calls
// return by theirs; that the work goes on; and that no key and no goroutine is left.
// Where nodes forget, the quorum is four of five.
//
// What the clients saw is also given to porcupine, which looks for an order of it all that makes sense
// (linear_test.go). A history without one is saved as a picture, to be opened in a browser, in the directory
// that QUORUMLOCK_HISTORIES names, or else in quorumlock-histories below the directory for temporary files.
// That the checkers refuse histories that are wrong is checked in checker_test.go.
//
// TestSoak mixes the faults at random, for as long as it is told, and checks the same:
//
//	go test ./integration -run Soak -soak 10m -timeout 15m
//
// It prints its seed; -soak-seed repeats the faults of one.
package integration
