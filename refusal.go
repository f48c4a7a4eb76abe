package quorumlock

import (
	"fmt"
	"strings"
	"time"
)

// HeldError is a refusal, with the holder of the lock. It matches [ErrHeld]. Its fields are the
// state at one node at the time of the refusal. The zero value of a field means unknown.
type HeldError struct {
	Name     string        // the name of the lock
	Holder   Owner         // empty if unknown, as when the lock is free but has a queue
	Data     string        // of the holder, if the caller's lock also has [WithData]
	TTL      time.Duration // of the holder's key, which a renewal may prolong; 0 if unknown
	Position int           // the caller's position in the queue, from 1; 0 if it is not queued
	Own      bool          // the holder is another call of the caller's client
}

// Error returns the holder, the remaining time and the caller's position, as far as known.
func (e *HeldError) Error() string {
	var b strings.Builder
	b.WriteString("quorumlock: " + lockName(e.Name))
	switch {
	case e.Holder == "":
		b.WriteString(" is held or awaited by somebody else")
	case e.Own:
		b.WriteString(" is held by this process, as " + e.Holder.name())
	default:
		b.WriteString(" is held by " + e.Holder.name())
	}
	if e.Data != "" {
		fmt.Fprintf(&b, " (%.100q)", e.Data)
	}
	if e.TTL > 0 {
		fmt.Fprintf(&b, " for another %v", max(e.TTL.Round(time.Millisecond), time.Millisecond))
	}
	if e.Position > 0 {
		fmt.Fprintf(&b, "; this call is number %d in the queue", e.Position)
	}
	return b.String()
}

// Unwrap returns [ErrHeld].
func (e *HeldError) Unwrap() error { return ErrHeld }

// LostError is the loss of a lease, with its reason. It is the [context.Cause] of the lease's
// context. It matches [ErrLost].
type LostError struct {
	Name   string       // the name of the lock
	Owner  Owner        // of the lease; empty if unknown
	Reason string       // for example, "it was not renewed in time"; empty if unknown
	Nodes  []*NodeError // the nodes that failed to renew
}

// Error returns the reason and the failures of the nodes.
func (e *LostError) Error() string {
	var b strings.Builder
	b.WriteString("quorumlock: the lease of " + lockName(e.Name) + " was lost")
	if e.Reason != "" {
		b.WriteString(": " + e.Reason)
	}
	writeNodes(&b, e.Nodes)
	return b.String()
}

// Unwrap returns [ErrLost] and the errors of the nodes, for [errors.Is] and [errors.As].
func (e *LostError) Unwrap() []error {
	errs := make([]error, 1, 1+len(e.Nodes))
	errs[0] = ErrLost
	for _, n := range e.Nodes {
		errs = append(errs, n)
	}
	return errs
}

// lockName quotes the name of a lock for an error.
func lockName(name string) string {
	if name == "" {
		return "the lock"
	}
	return fmt.Sprintf("the lock %q", name)
}

// writeNodes appends the failures of the nodes, after a colon.
func writeNodes(b *strings.Builder, nodes []*NodeError) {
	for i, n := range nodes {
		b.WriteString([]string{": ", "; "}[min(i, 1)])
		b.WriteString(n.text())
	}
}
