//go:build unix

package main

import "time"

// The protocol between run and its watchdog: lines of JSON, over a pipe in each direction. Times
// are on the clock of bootTime, which all processes of a machine share.

// order is a message from run to the watchdog. Only one field is set.
type order struct {
	Start    *start `json:",omitempty"` // the first order: run this command
	Deadline int64  `json:",omitempty"` // the new end of the lease, ns
	Lost     bool   `json:",omitempty"` // the lock is lost: begin the grace
	Signal   int    `json:",omitempty"` // to pass on
}

// start is a command, and the times that bound it. Texts are bytes, because JSON strings cannot
// hold invalid UTF-8.
type start struct {
	Path       []byte
	Args       [][]byte
	Env        [][]byte
	Foreground bool // the command gets the terminal, which is its stdin
	Deadline   int64
	Margin     time.Duration
	Grace      time.Duration
	Leave      bool // descendants may go on after the command has ended by itself
}

// report is a message from the watchdog to run. Only one field is set, except for Failed with
// Errno.
type report struct {
	Started int     `json:",omitempty"` // the process ID of the command, and of its process group
	Failed  string  `json:",omitempty"` // the reason why the command could not be run
	Errno   int     `json:",omitempty"` // of Failed
	Done    *result `json:",omitempty"` // the command and its descendants have ended
}

// result is the end of a command.
type result struct {
	Status int    // as in a shell
	Why    string // the reason why the watchdog ended it; empty if it ended by itself
	Left   int    // how often processes were left at the end of the command
	Dead   int64  // the time at which its last process was dead, ns
}

// The reasons for which a watchdog ends a command.
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

// toStrings is the inverse of toBytes.
func toStrings(all [][]byte) []string {
	texts := make([]string, len(all))
	for i, b := range all {
		texts[i] = string(b)
	}
	return texts
}
