// Command benchmarks measures quorumlock against other locks, side by side in one run, on redis-server
// processes that it starts itself and ends when it is done:
//
//	go run .                                    everything: some minutes
//	go run . -part contention -svg out.svg      the contention alone, with its chart
//	go test -bench . -benchtime 2000x           the figures of a single caller
//
// It needs redis-server in the PATH, and nothing else. Every figure has its rival measured in the same
// run, in turns with it: a machine that is busy with other things slows both. See -help for the flags.
package main
