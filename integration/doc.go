// Package integration has tests alone: the promises of quorumlock, checked on real Redis servers in
// containers that are killed, paused and cut off.
//
// The tests need a Docker daemon on this machine. Without one they do not run, and say so; with
// QUORUMLOCK_REQUIRE_DOCKER=1 that is a failure. QUORUMLOCK_REDIS_IMAGE names the image of the
// servers; the default is the current public one.
package integration
