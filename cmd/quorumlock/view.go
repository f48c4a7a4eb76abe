package main

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/redlock"
)

// lockView is a lock in the tool's output, and its JSON.
type lockView struct {
	Name      string              `json:"name"`
	NameBytes string              `json:"name_base64,omitempty"` // if the name is not valid UTF-8
	Kind      string              `json:"kind"`
	Known     bool                `json:"known"` // a quorum of the nodes answered
	Held      bool                `json:"held"`
	State     quorumlock.State    `json:"state"`
	Nodes     []redlock.NodeState `json:"nodes,omitempty"`

	at time.Time // of the inspection
}

// The kinds of locks.
const (
	kindUnknown   = "unknown"
	kindOther     = "other" // no lock
	kindFree      = "free"
	kindMutex     = "mutex"
	kindReaders   = "readers"
	kindSemaphore = "semaphore"
)

// newLockView converts an inspection.
func newLockView(name, kind string, known bool, in redlock.Inspection, now time.Time) lockView {
	v := lockView{Name: name, Kind: kind, Known: known, Held: in.State.Held(), State: in.State, Nodes: in.Nodes, at: now}
	if !utf8.ValidString(name) {
		v.NameBytes = base64.StdEncoding.EncodeToString([]byte(name))
	}
	return v
}

// holds returns the number of owners, readers or slots at a node.
func holds(s quorumlock.State) int {
	n := len(s.Readers) + len(s.Slots)
	if s.Owner != "" {
		n++
	}
	return n
}

// Waits returns how long a waiter has been in the queue.
func (v lockView) Waits(w quorumlock.Waiter) time.Duration { return max(v.at.Sub(w.Since), 0) }

// who returns the name of the owner for people: its label, if there is one.
func who(o quorumlock.Owner) string { return shown(cmp.Or(o.Label(), string(o))) }

// holder describes the holders of the lock in a few words.
func (v lockView) holder() string {
	owners := v.owners()
	if len(owners) == 0 {
		return "-"
	}
	holder := who(owners[0])
	if more := len(owners) - 1; more > 0 {
		holder += fmt.Sprintf(" and %d more", more)
	}
	if len(v.State.Slots) > 0 && v.State.Permits > 0 {
		holder += " (" + v.slotsTaken() + ")"
	}
	return holder
}

// maxData is the number of characters of the data in a line of list.
const maxData = 60

// data returns the beginning of the holder's data for a line of list.
func (v lockView) data() string {
	if v.State.Data == "" {
		return ""
	}
	if all := []rune(v.State.Data); len(all) > maxData {
		return shown(string(all[:maxData])) + "..."
	}
	return shown(v.State.Data)
}

// slotsTaken describes how many slots of a semaphore are taken, and of how many, if known.
func (v lockView) slotsTaken() string {
	if v.State.Permits == 0 {
		return plural(len(v.State.Slots), "slot")
	}
	return fmt.Sprintf("%d of %s", len(v.State.Slots), plural(v.State.Permits, "slot"))
}

// owners returns the holder, the readers or the holders of slots.
func (v lockView) owners() (owners []quorumlock.Owner) {
	if v.State.Owner != "" {
		owners = append(owners, v.State.Owner)
	}
	for _, r := range v.State.Readers {
		owners = append(owners, r.Owner)
	}
	for _, s := range v.State.Slots {
		owners = append(owners, s.Owner)
	}
	return owners
}

const (
	maxParties = 100 // holders of a lock that are kept for long
	maxQueue   = 10  // waiters of a lock that are kept for long
)

// shorten drops all but the first holders and waiters.
func (v *lockView) shorten() {
	v.State.Readers = first(v.State.Readers, maxParties)
	v.State.Slots = first(v.State.Slots, maxParties)
	v.State.Queue = first(v.State.Queue, maxQueue)
}

// first returns the first n, and keeps no reference to the others.
func first[T any](all []T, n int) []T {
	if len(all) <= n {
		return all
	}
	return slices.Clone(all[:n])
}

// errorText returns the text of an error, without the prefix of the library and without passwords.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return userinfo.ReplaceAllString(strings.ReplaceAll(err.Error(), "quorumlock: ", ""), "://")
}

// inMS returns a duration in milliseconds.
func inMS(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// seconds formats a duration.
func seconds(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0fm", d.Minutes())
	}
	return fmt.Sprintf("%.0fh", d.Hours())
}
