// Package scripts has the Lua that decides on a node: one .lua file for each operation, with its
// KEYS, ARGV and reply in the header. Keys, hash and channel are Redisson's, so that its clients
// and this library share locks.
//
// The Lua is here to be read. Packages node, redlock and multilock send it; programs need not.
package scripts

import "embed"

// Files has the .lua files. A line such as "-- include queue.lua" stands for that file, so a script
// that is sent to a node may consist of several files.
//
//go:embed *.lua
var Files embed.FS
