package quorumlock

import (
	"strings"

	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/settings"
)

// Owner identifies the holder of a lock.
//
// On the nodes an owner is a field of the lock's hash:
//
//	<client>:<n>.<cell>            a holder, and at which of the lock's cells
//	<client>:<n>/<attempt>.<cell>  a holder that acquired the lock by handoff
//
// The client is `<label>~<uuid>` for this library, see [WithLabel], and `<uuid>` for Redisson, with
// the number of a thread as n. In this library each call has a random n of its own. So a late
// message of one hold cannot affect the next, and two processes restored from one image have
// different owners. [Lease.Owner] and Inspect return the owner of a hold, without the cell.
//
// In the process, [WithOwner] selects the hold that a Lock call may enter. An Owner is a string and
// safe for concurrent use; the zero value is no owner.
type Owner string

// maxOwner is the longest owner that Validate accepts, in bytes.
const maxOwner = 200

// NewOwner returns a new owner, for [WithOwner]. It is unique across processes.
func NewOwner() Owner { return Owner(settings.NewID() + ":1") }

// Validate returns an error, which matches [ErrMisuse], unless o can own a lock at a node. An owner
// is `<client>:<n>`, of at most 200 printable ASCII characters without spaces, asterisks and
// slashes. The client must not be empty, and n consists of digits. The error has the reason and the
// fix.
func (o Owner) Validate() error {
	switch {
	case o == "":
		return errs.Misuse("quorumlock: the owner is empty: use quorumlock.NewOwner")
	case len(o) > maxOwner:
		return errs.Misusef("quorumlock: the owner %.40q has %d bytes: use at most %d, such as quorumlock.NewOwner returns", string(o), len(o), maxOwner)
	}
	for _, c := range []byte(o) {
		if c <= ' ' || c > '~' || c == '*' || c == '/' {
			return errs.Misusef("quorumlock: the owner %q contains %q: use printable ASCII characters without spaces, * and /, such as quorumlock.NewOwner returns", string(o), c)
		}
	}
	if i := strings.LastIndexByte(string(o), ':'); i < 1 || !settings.IsDigits(string(o[i+1:])) {
		return errs.Misusef("quorumlock: the owner %q is not <client>:<n>, where n is digits only: use a form such as billing-7:1, or quorumlock.NewOwner", string(o))
	}
	return nil
}

// Label returns the label of the client that owns the lock, see [WithLabel]. It is empty for owners
// without a label, as those of Redisson and of [NewOwner].
func (o Owner) Label() string {
	label, rest, ok := strings.Cut(string(o), "~")
	if !ok || !settings.IsLabel(label) || !strings.Contains(rest, ":") {
		return ""
	}
	return label
}

// name is the owner in errors: the label, if there is one.
func (o Owner) name() string {
	if label := o.Label(); label != "" {
		return label
	}
	return string(o)
}
