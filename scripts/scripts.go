// Package scripts holds the Lua that decides on a node: one .lua file for each operation, whose header names its KEYS,
// ARGV and reply. Keys, hash and channel are Redisson's, so that its clients and this library share locks.
//
// The Lua is here to be read. Packages node, redlock and multilock send it; programs need not.
package scripts

import "embed"

// Files holds the .lua files. A line such as "-- include queue.lua" stands for that file, so what a node is sent may be
// several of them.
//
//go:embed *.lua
var Files embed.FS
