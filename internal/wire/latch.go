package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
)

var latch = newScript("latch", lua("latch"))

const (
	latchPrefix = "quorumlock_latch"
	latchField  = "quorumlock_latch" // the field of the hash at the name
)

// LatchKey returns the key of a latch's ids. The channel on which a node announces that the latch
// opens has the same name.
func LatchKey(name string) string {
	return string(appendPrefixed(nil, latchPrefix, braced(name), name))
}

// LatchMode is the effect of a [Latch] call.
type LatchMode string

const (
	ReadLatch    LatchMode = "read"    // changes nothing
	KeepLatch    LatchMode = "keep"    // adds ids if the latch exists
	MakeLatch    LatchMode = "make"    // adds ids, and creates the latch if it does not exist
	RestoreLatch LatchMode = "restore" // like MakeLatch, for a latch that exists at another node
	OpenLatch    LatchMode = "open"    // like RestoreLatch, and opens it
)

// Latch adds ids to the latch name, which opens at n ids, and reads its state. The node keeps the
// latch for the retention from then on. server is a name for the server, which it stores if it
// creates the latch.
func Latch(name string, n int, mode LatchMode, retention time.Duration, server string, ids ...string) Call {
	return latchCall(name, n, mode, retention, server, 0, -1, ids)
}

// LatchTail reads the latch with up to tail ids, those that arrived last at the node.
func LatchTail(name string, n, tail int) Call {
	return latchCall(name, n, ReadLatch, 0, "", tail, -1, nil)
}

// LatchRest is [Latch] with [RestoreLatch]. Count and Digest in the reply cover the first cut ids
// of the node, without the given ids. ids must not repeat an id.
func LatchRest(name string, n int, retention time.Duration, server string, cut int, ids []string) Call {
	return latchCall(name, n, RestoreLatch, retention, server, 0, cut, ids)
}

func latchCall(name string, n int, mode LatchMode, retention time.Duration, server string, tail, cut int, ids []string) Call {
	args := append(make([]any, 0, 7+len(ids)), n, mode, milliseconds(retention), server, LatchKey(name), tail, cut)
	for _, id := range ids {
		args = append(args, id)
	}
	return NewCall(latch, []string{name, LatchKey(name), TokenKey(name)}, args...)
}

// LatchState is the state of a latch at one node. Nodes with the same Count and Digest have the
// same ids.
type LatchState struct {
	There bool
	Open  bool
	// The name that the server stored when it created the latch: two addresses with the same name
	// are one server. Empty if the latch does not exist.
	Server string
	Count  int
	Digest int64
	IDs    []string // for LatchTail
}

// Latched reads the reply to Latch, which was called with n. It returns
// [quorumlock.ErrMismatch] if the node's latch has another n, and [quorumlock.ErrWrongKind] if
// the key holds something else. In both cases the node changed nothing.
func (r Reply) Latched(n int) (LatchState, error) {
	if r.Err != nil {
		return LatchState{}, r.explain(func(said string) error { return latchRefusal(said, n) })
	}
	values, ok := r.Value.([]any)
	if !ok || len(values) != 5 {
		return LatchState{}, r.unexpected()
	}
	state, ok := values[0].(int64)
	server, ok2 := values[1].(string)
	count, ok3 := values[2].(int64)
	digest, ok4 := values[3].(int64)
	ids, ok5 := values[4].([]any)
	if !ok || !ok2 || !ok3 || !ok4 || !ok5 || state < 0 || state > 2 || (server == "") != (state == 0) {
		return LatchState{}, r.unexpected()
	}
	s := LatchState{There: state > 0, Open: state == 2, Server: server, Count: int(count), Digest: digest, IDs: make([]string, len(ids))}
	for i := range ids {
		if s.IDs[i], ok = ids[i].(string); !ok {
			return LatchState{}, r.unexpected()
		}
	}
	return s, nil
}

// latchRefusal returns the error for a refusal by latch.lua, or nil for any other text.
func latchRefusal(said string, n int) error {
	if stored, ok := strings.CutPrefix(said, "LATCH "); ok {
		needed, _, _ := strings.Cut(stored, " ")
		return mismatch(strconv.Itoa(n), needed)
	}
	why, ok := strings.CutPrefix(said, "WRONGKIND ")
	if !ok {
		return nil
	}
	what, field, _ := strings.Cut(why, " ")
	switch {
	case what == "string":
		return wrongKind{"latch", "a string, as the countdown latch of Redisson's has"}
	case what == "semaphore":
		return wrongKind{"latch", "a semaphore"}
	case what == "token":
		return wrongKind{"latch", "a mutex or a read-write lock that was locked within the last few minutes"}
	case what == "ids":
		return wrongKind{"latch", "a latch whose key " + latchPrefix + " holds another type of value"}
	case what == "field" && field == "mode":
		return wrongKind{"latch", "a read-write lock of Redisson's"}
	case what == "field" && isOwner(field):
		return wrongKind{"latch", "a mutex or a read-write lock"}
	case what == "field":
		return wrongKind{"latch", fmt.Sprintf("a hash with the field %.100q", field)}
	}
	return wrongKind{"latch", "another type of value"}
}

// mismatch returns the error of a number of ids or permits that differs from the node's.
func mismatch(here, there string) error {
	return fmt.Errorf("%w: %.20s here, and %.20s at the node: use one number for each name", quorumlock.ErrMismatch, here, there)
}

// IsWrongUse reports whether an error is about the contents of the lock's keys: the node works, and
// the name or the number is wrong.
func IsWrongUse(err error) bool {
	return errors.Is(err, quorumlock.ErrNotALock) || errors.Is(err, quorumlock.ErrWrongKind) || errors.Is(err, quorumlock.ErrMismatch)
}

// wrongKind is [quorumlock.ErrWrongKind] with the kind of the call and the kind at the node.
type wrongKind struct{ used, has string } // used is empty for an inspection, which is of any kind

const mutual = "mutex or a read-write lock"

func (e wrongKind) Error() string {
	if e.used == "" {
		return fmt.Sprintf("%v: it is %s: use the name of a mutex, a read-write lock or a semaphore", quorumlock.ErrWrongKind, e.has)
	}
	return fmt.Sprintf("%v: it was used as a %s, and is %s: use another name", quorumlock.ErrWrongKind, e.used, e.has)
}

// Is also matches ErrNotALock if the name was used as a lock.
func (e wrongKind) Is(target error) bool {
	return target == quorumlock.ErrWrongKind || target == quorumlock.ErrNotALock && e.used != "latch"
}
