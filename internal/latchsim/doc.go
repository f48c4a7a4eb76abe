// Package latchsim runs latches under hostile schedules, and checks what is promised of them. It has tests only.
//
//	go test ./internal/latchsim                          a sample of seeds, and of the planted bugs
//	go test ./internal/latchsim -run Seeds -seeds 100000 -timeout 60m
//	go test ./internal/latchsim -run Seeds -seed 42 -v   one seed, with its history
//	go test ./internal/latchsim -run Planted -planted all -v -timeout 20m
//
// The library, go-redis and the Lua are real, in a bubble of testing/synctest. Several processes call Done, Wait and Count
// of one latch, give up at any moment, and die. Paths are cut, frozen, slow, mute or deaf, or lose requests and replies.
// Nodes crash, lose their scripts, and as many of them as may also lose their data, all of it or one key, again and again.
//
// What is checked (history_test.go): porcupine finds an order of all calls that a set of ids in one place would allow; when
// Done returns nil, a quorum has its id; no call says that the latch is forgotten; every call ends in time; a Wait is told
// of an open latch at once while nothing is wrong, and soon after everything is well again.
package latchsim
