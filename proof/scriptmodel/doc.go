// Package scriptmodel is the Lua of package scripts once more, in Go: what one node stores of its locks, and what
// each script does with it. It runs a call in a fraction of the time that a Lua interpreter needs, so that a
// simulation can play many more schedules.
//
// A [Node] has no clock, no connection and no goroutine. Every call says what time it is, and gets the reply that
// the script would give and the messages that it would publish. The same calls at the same times always have the
// same outcome.
//
// # How it is kept true
//
// TestModelAgreesWithTheScripts runs random commands both here and as Lua on miniredis. After every command it
// compares the reply, the messages, and every key with its type, content and remaining time, byte by byte. If they
// differ, it prints the shortest list of commands that shows the difference:
//
//	go test ./proof/scriptmodel                                              20,000 commands, in a few seconds
//	go test ./proof/scriptmodel -run Agrees -commands 1000000 -timeout 30m   a long run
//	go test ./proof/scriptmodel -run Agrees -seed 42                         one sequence
//	go test ./proof/scriptmodel -run Redis -redis redis-server -v            a real server, whose clock stands still
//	go test ./proof/scriptmodel -run Broken -broken all -v -timeout 60m      breaks every line of the Lua, one by one
//
// So whoever changes a script changes its twin here: acquire.lua is acquire.go, and so on; queue.go is queue.lua and the files that scripts include after it,
// line by line and with the same names. What Redis does for the scripts is in store.go, and what Lua does is in lua.go.
//
// The commands are good enough if they notice whatever is broken in the scripts: TestBrokenScriptsAreNoticed breaks
// each line in many ways, and proof/mutation/scores.txt has how many of them are noticed.
//
// # Where it is not exact
//
//   - It runs the calls that package wire makes. Of other calls it says that the script failed, where it can tell.
//   - The text of an error that Lua raises itself, such as a comparison with nil, is not Lua's. That there is an error, and what
//     the script has written before it, is the same.
//   - A hash lists its fields in the order in which they came, as Redis does with the small ones.
//   - A key that is over is gone at the next call that looks at it. If a clock is stepped back before that, Redis may have
//     removed it or not.
//   - It never runs out of memory, and every user may do everything but publish and ask for INFO.
package scriptmodel
