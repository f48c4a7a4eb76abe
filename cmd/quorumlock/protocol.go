//go:build unix

package main

import "time"

// What run and its watchdog say to each other: a line of JSON each, over a pipe in each direction. Times are on the clock of
// bootTime, which all processes of a machine share.

// order is what run says to the watchdog. Only one field is set.
type order struct {
	Start    *start `json:",omitempty"` // the first: run this
	Deadline int64  `json:",omitempty"` // the lease ends then, ns
	Lost     bool   `json:",omitempty"` // the lock is lost: the command has a grace
	Signal   int    `json:",omitempty"` // pass it on
}

// start is a command, and the times that bound it. Its texts are bytes, which JSON keeps as they are: of a string it replaces
// what is not UTF-8.
type start struct {
	Path       []byte
	Args       [][]byte
	Env        [][]byte
	Foreground bool // the command gets the terminal, which is its stdin
	Deadline   int64
	Margin     time.Duration
	Grace      time.Duration
	Leave      bool // what the command has started goes on when the command has ended by itself
}

// report is what the watchdog says to run. Only one field is set.
type report struct {
	Started int     `json:",omitempty"` // the process ID of the command, and of its process group
	Failed  string  `json:",omitempty"` // why it could not be run
	Errno   int     `json:",omitempty"` // along with Failed
	Done    *result `json:",omitempty"` // nothing of it is left
}

// result is how a command ended.
type result struct {
	Status int    // as a shell has it
	Why    string // why it was ended; empty if it ended by itself
	Left   int    // how often something was left when the command had ended
	Dead   int64  // when its last process was dead, ns
}

// Why a watchdog ends a command.
const (
	becauseDeadline = "its lease could not be renewed and was about to end"
	becauseLost     = "the lock was lost"
	becauseOrphan   = "quorumlock was killed"
	becauseLeft     = "left"
)

// toBytes returns the bytes of texts.
func toBytes(texts []string) [][]byte {
	all := make([][]byte, len(texts))
	for i, t := range texts {
		all[i] = []byte(t)
	}
	return all
}

// toStrings returns the texts that toBytes was given.
func toStrings(all [][]byte) []string {
	texts := make([]string, len(all))
	for i, b := range all {
		texts[i] = string(b)
	}
	return texts
}
