// Command benchmarks measures quorumlock beside other locks, and judges the promises of speed.
//
//	go run . -quick                        everything once, for a moment: does it work? (a minute)
//	go run . -check                        everything, and status 1 if a promise is missed (110+ min)
//	go run . -part throughput -check       one part of it
//	go run . -part crowd -crowd 20000,one  some of its crowds
//	go run . -part idle -store memory      what a million names leave ten minutes later (12 min)
//	go run . -against ../../other          with another checkout of quorumlock, in turns, and the ratios
//	go run . -charts ../docs               draw the charts too
//	go test -bench . -cpuprofile cpu.out   lock and unlock of a single caller, to profile
//
// It starts its servers on free ports of the loopback interface, each in a temporary directory of
// its own, and ends them by their process ids. It needs redis-server in the PATH. etcd, PostgreSQL
// and ZooKeeper are measured if they are installed (Debian: etcd-server, postgresql, zookeeper).
// The report names the missing ones, and a promise that compares with one counts as not measured.
//
// # How it measures
//
// A part has contests. The entries of a contest take turns, in another order in each round, each in
// a worker process of its own that finds empty servers. So a slow machine slows all of them. Tables
// have the median of the rounds.
//
// In a crowd, callers wait for at most half a minute. A caller whose call fails, or does not return
// in another half, is counted as failed. Each turn has a bound in time, whatever the calls do.
//
// # How it judges
//
// A promise about a ratio takes the ratio within each round and judges the median of these, so that
// a slow minute cancels out and a bad round counts as one. While the bound lies between the
// quartiles of the figures, more rounds follow, up to -most.
package main
