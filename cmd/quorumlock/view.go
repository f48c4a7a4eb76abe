package main

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/redlock"
)

// lockView is a lock in the tool's output, and its JSON. Times are in milliseconds.
type lockView struct {
	Name      string      `json:"name"`
	NameBytes string      `json:"name_base64,omitempty"` // if the name is not valid UTF-8
	Kind      string      `json:"kind"`
	Known     bool        `json:"known"` // a quorum of the nodes answered
	Held      bool        `json:"held"`
	Holder    *partyView  `json:"holder,omitempty"`
	Data      string      `json:"data,omitempty"` // of the holder
	Count     int         `json:"count,omitempty"`
	TTL       int64       `json:"ttl_ms"`
	Token     uint64      `json:"token"`
	Readers   []partyView `json:"readers,omitempty"`
	// number of slots of a semaphore, if it has waiters
	Permits int          `json:"permits,omitempty"`
	Slots   []slotView   `json:"slots,omitempty"`
	Waiting int          `json:"waiting"`
	Queue   []waiterView `json:"queue,omitempty"`
	Nodes   []nodeView   `json:"nodes,omitempty"`
}

type partyView struct {
	Owner string `json:"owner"`
	Label string `json:"label,omitempty"`
	TTL   int64  `json:"ttl_ms"`
}

type slotView struct {
	Number int `json:"number"`
	partyView
	Token uint64 `json:"token"`
}

type waiterView struct {
	Owner   string    `json:"owner"`
	Label   string    `json:"label,omitempty"`
	Since   time.Time `json:"since"`
	Waits   int64     `json:"waits_ms"`
	Callers int       `json:"callers"`
	Reader  bool      `json:"reader,omitempty"`
}

type nodeView struct {
	Node    string `json:"node"`
	Error   string `json:"error,omitempty"`
	Owner   string `json:"owner,omitempty"`
	TTL     int64  `json:"ttl_ms"`
	Token   uint64 `json:"token"`
	Waiting int    `json:"waiting"`
	Holds   int    `json:"holds"` // number of owners, readers or slots at the node
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
	s := in.State
	v := lockView{Name: name, Kind: kind, Known: known, Held: s.Held(), Data: s.Data, Count: s.HoldCount, TTL: s.TTL.Milliseconds(), Token: s.Token, Permits: s.Permits, Waiting: s.Waiting}
	if !utf8.ValidString(name) {
		v.NameBytes = base64.StdEncoding.EncodeToString([]byte(name))
	}
	if s.Owner != "" {
		p := newParty(s.Owner, s.TTL)
		v.Holder = &p
	}
	for _, r := range s.Readers {
		v.Readers = append(v.Readers, newParty(r.Owner, r.TTL))
	}
	for _, slot := range s.Slots {
		v.Slots = append(v.Slots, slotView{slot.Number, newParty(slot.Owner, slot.TTL), slot.Token})
	}
	for _, w := range s.Queue {
		v.Queue = append(v.Queue, waiterView{string(w.Owner), w.Owner.Label(), w.Since, max(now.Sub(w.Since), 0).Milliseconds(), w.Callers, w.Reader})
	}
	for _, n := range in.Nodes {
		v.Nodes = append(v.Nodes, nodeView{n.Node, errorText(n.Err), string(n.State.Owner), n.State.TTL.Milliseconds(), n.State.Token, n.State.Waiting, holds(n.State)})
	}
	return v
}

func holds(s quorumlock.State) int {
	n := len(s.Readers) + len(s.Slots)
	if s.Owner != "" {
		n++
	}
	return n
}

func newParty(o quorumlock.Owner, ttl time.Duration) partyView {
	return partyView{string(o), o.Label(), ttl.Milliseconds()}
}

// who returns the name of the owner for people: its label, if there is one.
func (p partyView) who() string { return who(p.Owner, p.Label) }

func (w waiterView) who() string { return who(w.Owner, w.Label) }

func who(owner, label string) string {
	if label != "" {
		return shown(label)
	}
	return shown(owner)
}

// holder describes the holders of the lock in a few words.
func (v lockView) holder() string {
	switch {
	case v.Holder != nil:
		return v.Holder.who()
	case len(v.Readers) == 1:
		return v.Readers[0].who()
	case len(v.Readers) > 1:
		return fmt.Sprintf("%s and %d more", v.Readers[0].who(), len(v.Readers)-1)
	case len(v.Slots) > 0:
		holder := v.Slots[0].who()
		if more := len(v.Slots) - 1; more > 0 {
			holder += fmt.Sprintf(" and %d more", more)
		}
		if v.Permits > 0 {
			holder += " (" + v.slotsTaken() + ")"
		}
		return holder
	}
	return "-"
}

// maxData is the number of characters of the data in a line of list.
const maxData = 60

// data returns the beginning of the holder's data for a line of list.
func (v lockView) data() string {
	if v.Data == "" {
		return ""
	}
	if all := []rune(v.Data); len(all) > maxData {
		return shown(string(all[:maxData])) + "..."
	}
	return shown(v.Data)
}

// slotsTaken describes how many slots of a semaphore are taken, and of how many, if known.
func (v lockView) slotsTaken() string {
	if v.Permits == 0 {
		return plural(len(v.Slots), "slot")
	}
	return fmt.Sprintf("%d of %s", len(v.Slots), plural(v.Permits, "slot"))
}

// parties returns the holder, the readers or the holders of slots.
func (v lockView) parties() []partyView {
	parties := slices.Clone(v.Readers)
	if v.Holder != nil {
		parties = append(parties, *v.Holder)
	}
	for _, s := range v.Slots {
		parties = append(parties, s.partyView)
	}
	return parties
}

const (
	maxParties = 100 // holders of a lock that are kept for long
	maxQueue   = 10  // waiters of a lock that are kept for long
)

// shorten drops all but the first holders and waiters.
func (v *lockView) shorten() {
	v.Readers = first(v.Readers, maxParties)
	v.Slots = first(v.Slots, maxParties)
	v.Queue = first(v.Queue, maxQueue)
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

// seconds formats a number of milliseconds.
func seconds(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
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
