// Package scriptmodel is a second version of the Lua of package scripts, in Go: the state of the
// locks at one node, and the effect of each script on it. It runs a call in a fraction of the time
// of a Lua interpreter, so that a simulation can play many more schedules.
//
// A [Node] has no clock, no connection and no goroutine. Every call passes the time. It returns the
// reply of the script and the messages that it publishes. The same calls at the same times always
// have the same outcome.
//
// # How it is kept true
//
// TestModelAgreesWithTheScripts runs random commands both here and as Lua on miniredis. After every
// command it compares the reply, the messages, and every key with its type, content and remaining
// time, byte by byte. If they differ, it prints the shortest list of commands that shows the
// difference:
//
//	go test ./proof/scriptmodel                                              20,000 commands
//	go test ./proof/scriptmodel -run Agrees -commands 1000000 -timeout 30m   a long run
//	go test ./proof/scriptmodel -run Agrees -seed 42                         one sequence
//	go test ./proof/scriptmodel -run Redis -redis redis-server -v            a real server
//	go test ./proof/scriptmodel -run Broken -broken all -v -timeout 60m      breaks each Lua line
//
// The clock of the real server stands still. A change of a script needs the same change of its twin
// here: acquire.lua is acquire.go, for instance. queue.go is queue.lua and the files that scripts
// include after it, line by line and with the same names. store.go has the commands of Redis, and
// lua.go has the functions of Lua.
//
// The commands are good enough if they notice any change that breaks a script:
// TestBrokenScriptsAreNoticed breaks each line in many ways. proof/mutation/scores.txt has the
// number of noticed ones.
//
// # Where it is not exact
//
//   - It has no elections, bundles and checks of a node: leader.lua, proclaim.lua, withdraw.lua,
//     bundle.lua and ready.lua.
//   - It runs the calls that package wire makes. Of other calls it reports that the script failed,
//     where it can tell.
//   - The text of an error that Lua raises itself, such as a comparison with nil, is not Lua's. The
//     error itself, and the writes before it, are the same.
//   - A hash lists its fields in the order of their arrival, like a small hash of Redis.
//   - An expired key is removed at the next call that looks at it. If a clock is stepped back
//     before that, Redis may have removed it or not.
//   - It never runs out of memory, and every user may run all commands but PUBLISH and INFO.
package scriptmodel
