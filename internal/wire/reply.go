package wire

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/settings"
)

// Reply is the reply to one Call: the script's value, or the error in its place.
type Reply struct {
	Value any // nil if n has the value: see Boxed
	Err   error

	// Most replies are a few integers, which n holds without an allocation.
	n       [maxIntegers]int64
	count   int8 // length of n; 0 if the value is in Value
	isArray bool
}

// maxIntegers is the largest number of integers that a reply keeps without an allocation.
const maxIntegers = 3

// Integer returns the reply of a script that returns an integer.
func Integer(n int64) Reply { return Reply{n: [maxIntegers]int64{n}, count: 1} }

// Integers returns the reply of a script that returns an array of one to three integers.
func Integers(n ...int64) Reply {
	r := Reply{isArray: true}
	r.count = int8(copy(r.n[:], n))
	return r
}

// Boxed returns the reply with its value in Value.
func (r Reply) Boxed() Reply {
	switch {
	case r.count == 0:
		return r
	case !r.isArray:
		return Reply{Value: r.n[0], Err: r.Err}
	}
	values := make([]any, r.count)
	for i := range values {
		values[i] = r.n[i]
	}
	return Reply{Value: values, Err: r.Err}
}

// Answer is a node's answer to Acquire.
type Answer struct {
	Granted bool
	Again   bool   // granted, and the owner had the lock already
	Token   uint64 // if granted: the token of this hold at this node
	Slot    int    // if granted: the slot of a semaphore
	// Refused because others share the lock. Holder is one of them; nodes may name different ones.
	Shared bool
	// Refused: the waiter takes only its preferred slot, which Holder has. Slot is a free one.
	Elsewhere bool
	Free      bool // refused: the lock is free, but others are queued before the caller
	// If refused: the holder, or the first in the queue if the lock is free.
	Holder quorumlock.Owner
	// If refused: until the holder's key expires, or the caller should ask again; 0 if unknown.
	TTL      time.Duration
	Position int // if refused: position in the queue, from 0; -1 if not queued
}

const maxPosition = 1 << 24 // no queue is as long

// Acquired reads the reply to Acquire. It returns [quorumlock.ErrQuarantined] if the restart guard
// kept the node from granting, and [quorumlock.ErrNotALock] if the key holds something else. In
// both cases the node changed nothing.
func (r Reply) Acquired() (Answer, error) {
	if r.Err != nil {
		return Answer{}, r.lookFailure()
	}
	if token, ok := r.single(); ok && token > 0 {
		return Answer{Granted: true, Token: uint64(token), Position: -1}, nil
	}
	n, values, ok := r.leading()
	if !ok {
		return Answer{}, r.unexpected()
	}
	switch {
	case len(n) == 2 && n[0] == 2 && n[1] > 0:
		return Answer{Granted: true, Again: true, Token: uint64(n[1]), Position: -1}, nil
	case (len(values) == 4 || len(values) == 5) && (n[0] == 0 || n[0] == 4 || n[0] == 7 || n[0] == 8):
		who, ok := values[3].(string)
		if _, told := r.Clock(); !ok || len(values) == 5 && !told || n[2] < -1 || n[2] > maxPosition {
			return Answer{}, r.unexpected()
		}
		if n[0] == 8 && (n[1] < 0 || n[1] >= settings.MaxPermits) {
			return Answer{}, r.unexpected()
		} else if n[0] == 8 {
			return Answer{Elsewhere: true, Slot: int(n[1]), Holder: quorumlock.Owner(who), Position: int(n[2])}, nil
		}
		if n[1] == 0 {
			n[1] = 1 // the key's last millisecond; unknown is negative
		}
		ttl := max(time.Duration(n[1])*time.Millisecond, 0)
		return Answer{Free: n[0] == 4, Shared: n[0] == 7, Holder: quorumlock.Owner(who), TTL: ttl, Position: int(n[2])}, nil
	case len(n) == 3 && (n[0] == 5 || n[0] == 6) && n[1] > 0 && 0 <= n[2] && n[2] < settings.MaxPermits:
		return Answer{Granted: true, Again: n[0] == 6, Token: uint64(n[1]), Slot: int(n[2]), Position: -1}, nil
	}
	if q, ok := r.quarantine(); ok {
		return Answer{}, q.err()
	}
	return Answer{}, r.unexpected()
}

// Clock returns the node's clock, which a refused Acquire reports to a waiter.
func (r Reply) Clock() (now time.Time, ok bool) {
	values, isList := r.Value.([]any)
	if r.Err != nil || !isList || len(values) != 5 {
		return time.Time{}, false
	}
	ms, ok := values[4].(int64)
	return time.UnixMilli(ms), ok
}

// Done reads the reply to Raise, Renew, Leave and ForceRelease: whether the script took effect.
func (r Reply) Done() (bool, error) {
	n, err := r.integer()
	return n == 1, err
}

// Released reads the reply to Release: the count that is left, and whether the entry was held.
func (r Reply) Released() (left int, held bool, err error) {
	n, err := r.integer()
	if err != nil {
		return 0, false, err
	}
	return int(max(n, 0)), n >= 0, nil
}

// Transferred is a node's answer to Park, Attach and Return.
type Transferred struct {
	OK    bool             // the owner to whom the hold was to be passed has it
	Again bool             // and had it already
	Token uint64           // with OK: the last one that was counted at the node; with Other: that, if it is above the limit of an Attach, else 0
	Left  time.Duration    // with OK: the remaining TTL of the key; negative if it has none
	Other quorumlock.Owner // who has it instead; empty if nobody is known to
}

// Transferred reads the reply to Park, Attach and Return. The error is [quorumlock.ErrQuarantined]
// if the restart guard prevented the call.
func (r Reply) Transferred() (Transferred, error) {
	if r.Err != nil {
		return Transferred{}, r.failure()
	}
	n, values, ok := r.leading()
	switch {
	case !ok:
	case len(n) == 3 && len(values) <= 3 && (n[0] == 1 || n[0] == 2) && n[1] >= 0 && n[2] >= -1:
		left := time.Duration(min(n[2], math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
		return Transferred{OK: true, Again: n[0] == 2, Token: uint64(n[1]), Left: left}, nil
	case len(n) == 2 && n[0] == 0:
		return Transferred{}, nil
	}
	if q, ok := r.quarantine(); ok {
		return Transferred{}, q.err()
	}
	if values, isList := r.Value.([]any); isList && len(values) == 3 && values[0] == int64(3) {
		if who, ok := values[2].(string); ok && who != "" {
			last, _ := values[1].(int64)
			return Transferred{Token: uint64(max(last, 0)), Other: quorumlock.Owner(who)}, nil
		}
	}
	return Transferred{}, r.unexpected()
}

// Yielded reads the reply to Yield: whether the waiter could have the lock now, because the lock is
// free and the waiter is first in the queue. slot is a free slot of a semaphore, valid if open.
func (r Reply) Yielded() (open bool, slot int, err error) {
	_, first, err := r.two()
	return first > 0, int(first) - 1, err
}

// Inspected reads the reply to Inspect.
func (r Reply) Inspected() (quorumlock.State, error) {
	s, err := r.inspected()
	if kind, ok := errors.AsType[wrongKind](err); ok { // an inspection uses the name as no kind
		kind.used = ""
		if n, ok := errors.AsType[*quorumlock.NodeError](err); ok {
			return s, &quorumlock.NodeError{Node: n.Node, Err: kind}
		}
		return s, kind
	}
	return s, err
}

func (r Reply) inspected() (quorumlock.State, error) {
	if r.Err != nil {
		return quorumlock.State{}, r.lookFailure()
	}
	fields, err := r.values()
	if err != nil {
		return quorumlock.State{}, err
	}
	if len(fields) != 7 {
		return quorumlock.State{}, r.unexpected()
	}
	held, ok := fields[0].([]any)
	pttl, ok2 := fields[1].(int64)
	token, ok3 := fields[2].(string)
	length, ok4 := fields[3].(int64)
	waiters, ok5 := fields[4].([]any)
	entries, ok6 := fields[5].([]any)
	now, ok7 := fields[6].(int64)
	last, err := strconv.ParseUint(token, 10, 64)
	if !ok || !ok2 || !ok3 || !ok4 || !ok5 || !ok6 || !ok7 || err != nil {
		return quorumlock.State{}, r.unexpected()
	}
	s := quorumlock.State{TTL: max(time.Duration(pttl)*time.Millisecond, 0), Token: last, Waiting: int(length)}
	if err := r.holders(&s, held, now); err != nil {
		return quorumlock.State{}, err
	}
	s.Queue, err = r.queue(waiters, entries)
	return s, err
}

// Fields returns the fields of an inspected lock that belong to a hold of this owner, as the node
// stores them, with the cell. There is more than one only if cells of the hold share the server.
// Inspected or InspectedSlots must have accepted the reply.
func (r Reply) Fields(owner quorumlock.Owner) (fields []quorumlock.Owner) {
	values, _ := r.values()
	held, _ := values[0].([]any)
	for i := 0; i < len(held); i += 2 {
		f, _ := held[i].(string)
		if o := quorumlock.Owner(f); o == owner || Base(o) == owner {
			fields = append(fields, o)
		}
	}
	return fields
}

// leading returns the leading integers of a list, three at most, and all values if the list is
// boxed. ok reports whether the reply is a list that begins with integers.
func (r *Reply) leading() (n []int64, values []any, ok bool) {
	if r.count > 0 {
		return r.n[:r.count], nil, r.isArray
	}
	values, ok = r.Value.([]any)
	n = r.n[:min(len(values), maxIntegers)]
	for i := range n {
		if n[i], ok = values[i].(int64); !ok {
			return nil, nil, false
		}
	}
	return n, values, ok
}

// holders reads a lock's hash into s. now is the node's clock, in ms since 1970.
func (r Reply) holders(s *quorumlock.State, held []any, now int64) error {
	mode := ""
	for i := 0; i+1 < len(held); i += 2 {
		if held[i] == "mode" {
			mode, _ = held[i+1].(string)
		}
	}
	switch mode {
	case "", "mutex", "shared":
	case "latch":
		return notALock(latchField)
	default:
		return notALock("mode")
	}
	owners := 0
	for i := 0; i+1 < len(held); i += 2 {
		who, ok := held[i].(string)
		value, ok2 := held[i+1].(string)
		n, err := strconv.ParseUint(value, 10, 63)
		switch owner := Base(quorumlock.Owner(who)); {
		case !ok || !ok2:
			return r.unexpected()
		case who == "mode" && mode != "":
		case err != nil || !isOwner(who) || owners > 0 && mode != "shared":
			return notALock(who)
		case mode == "shared":
			owners++
			if left := int64(n) - now; left >= 0 {
				s.Readers = append(s.Readers, quorumlock.Reader{Owner: owner, TTL: time.Duration(max(left, 1)) * time.Millisecond})
			}
		default:
			owners++
			s.Owner, s.HoldCount = owner, int(n)
		}
	}
	if mode == "" && owners == 1 && !isRedissons(string(s.Owner)) {
		return notALock(string(s.Owner))
	}
	if mode == "shared" { // Redisson's clients rely on the key's own TTL
		s.TTL = 0
		for _, r := range s.Readers {
			s.TTL = max(s.TTL, r.TTL)
		}
	}
	slices.SortFunc(s.Readers, func(a, b quorumlock.Reader) int { return cmp.Compare(a.Owner, b.Owner) })
	return nil
}

// isOwner reports whether a field of a hash has the form of an owner of this library or of
// Redisson. holds.lua applies the same rule.
func isOwner(field string) bool {
	client, rest, ok := lastCut(field, ':')
	return ok && client != "" && !strings.ContainsAny(field, " \t\r\n\v\f") && rest != "" &&
		rest[0] >= '0' && rest[0] <= '9' && strings.Trim(rest, "0123456789/.") == ""
}

// isRedissons reports whether an owner has Redisson's form, `<uuid>:<thread>`. Only Redisson's
// holds have no mode.
func isRedissons(owner string) bool {
	client, thread, ok := lastCut(owner, ':')
	parts := strings.Split(client, "-")
	for _, p := range parts {
		ok = ok && p != "" && strings.Trim(p, "0123456789abcdefABCDEF") == ""
	}
	return ok && len(client) == 36 && len(parts) == 5 && thread != "" && strings.Trim(thread, "0123456789") == ""
}

func lastCut(s string, sep byte) (before, after string, found bool) {
	if i := strings.LastIndexByte(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

// queue reads waiters, each followed by its ticket, and their entries.
func (r Reply) queue(values, entries []any) ([]quorumlock.Waiter, error) {
	if len(values) != 2*len(entries) {
		return nil, r.unexpected()
	}
	var queue []quorumlock.Waiter
	for i, e := range entries {
		owner, ok := values[2*i].(string)
		score, ok2 := values[2*i+1].(string)
		stored, ok3 := e.(string)
		ticket, err := strconv.ParseFloat(score, 64)
		if !ok || !ok2 || !ok3 || err != nil {
			return nil, r.unexpected()
		}
		w := quorumlock.Waiter{Owner: quorumlock.Owner(owner), Since: time.UnixMicro(int64(ticket)), Callers: 1}
		if f := strings.Fields(stored); len(f) > 1 {
			var callers string
			callers, _, w.Reader = strings.Cut(f[1], "s")
			callers, _, _ = strings.Cut(callers, "k")
			if n, err := strconv.Atoi(strings.TrimSuffix(callers, "t")); err == nil {
				w.Callers = n
			}
		}
		// An entry of 0 callers is no waiter: see open.lua.
		if w.Callers > 0 {
			queue = append(queue, w)
		}
	}
	return queue, nil
}

func (r Reply) integer() (int64, error) {
	if r.Err != nil {
		return 0, r.failure()
	}
	n, ok := r.single()
	if !ok {
		return 0, r.unexpected()
	}
	return n, nil
}

// single returns the value if it is one integer.
func (r *Reply) single() (n int64, ok bool) {
	if r.count > 0 {
		return r.n[0], !r.isArray
	}
	n, ok = r.Value.(int64)
	return n, ok
}

func (r Reply) values() ([]any, error) {
	if r.Err != nil {
		return nil, r.failure()
	}
	values, ok := r.Boxed().Value.([]any)
	if !ok {
		return nil, r.unexpected()
	}
	return values, nil
}

// two reads a reply of two integers.
func (r Reply) two() (first, second int64, err error) {
	if r.Err != nil {
		return 0, 0, r.failure()
	}
	n, values, ok := r.leading()
	if !ok || len(n) != 2 || len(values) > 2 {
		return 0, 0, r.unexpected()
	}
	return n[0], n[1], nil
}

// failure returns the error of a reply without a value. An error about the lock's key becomes one
// of this library's.
func (r Reply) failure() error {
	return r.explain(func(said string) error {
		field, ours := strings.CutPrefix(said, "NOTALOCK ")
		what, semaphore := strings.CutPrefix(said, "NOSEMAPHORE ")
		numbers, other := strings.CutPrefix(said, "OTHERPERMITS ")
		switch {
		case ours:
			return notALock(field)
		case semaphore:
			return noSemaphore(what)
		case other:
			return otherPermits(numbers)
		case strings.HasPrefix(said, "WRONGTYPE "):
			return notALock("WRONGTYPE")
		}
		return nil
	})
}

// lookFailure is failure for the scripts that check the lock's own key first, and return NOTALOCK
// for it. A WRONGTYPE is then about the queue.
func (r Reply) lookFailure() error {
	return r.explain(func(said string) error {
		if !strings.HasPrefix(said, "WRONGTYPE ") {
			return r.failure()
		}
		return badQueue{}
	})
}

// badQueue is [quorumlock.ErrNotALock] with the names of the queue's keys.
type badQueue struct{}

func (badQueue) Error() string {
	return fmt.Sprintf("a key of the lock's queue holds another kind of value: delete the keys of the lock that begin with %s and %s: WRONGTYPE", queuePrefix, entriesPrefix)
}

func (badQueue) Is(target error) bool { return target == quorumlock.ErrNotALock }

// explain replaces a node's error by the result of explanation, unless that is nil.
func (r Reply) explain(explanation func(said string) error) error {
	n, _ := errors.AsType[*quorumlock.NodeError](r.Err)
	said := r.Err
	if n != nil {
		said = n.Err
	}
	err := explanation(said.Error())
	switch {
	case err == nil:
		return r.Err
	case n == nil:
		return err
	}
	if _, ok := errors.AsType[*quorumlock.NodeError](err); ok {
		return err
	}
	return &quorumlock.NodeError{Node: n.Node, Err: err}
}

// stringAsLock describes the likely value of a key of another type.
const stringAsLock = "a string, for example, as redsync and redislock write it for a lock, or Redisson for a semaphore or a latch (WRONGTYPE)"

// notALock returns the error for a key with a field that no lock has.
func notALock(field string) error {
	switch field {
	case "mode":
		return wrongKind{mutual, "a read-write lock of Redisson's"}
	case latchField:
		return wrongKind{mutual, "a latch"}
	case semaphoreField:
		return wrongKind{mutual, aSemaphore}
	case "WRONGTYPE": // not a field: the key is no hash
		return wrongKind{mutual, "no hash, but " + stringAsLock}
	}
	return fmt.Errorf("%w: it is a hash with the field %.100q", quorumlock.ErrNotALock, field)
}

const aSemaphore = "a semaphore"

// IsSemaphore reports whether err is that of a call for a mutex whose name is a semaphore's.
func IsSemaphore(err error) bool {
	e, ok := errors.AsType[wrongKind](err)
	return ok && e.used != "latch" && e.has == aSemaphore
}

// maxShown is the largest part of an unexpected reply that an error repeats, in bytes.
const maxShown = 100

func (r Reply) unexpected() error {
	said := fmt.Sprint(cut(r.Boxed().Value))
	if len(said) > maxShown {
		said = said[:maxShown] + "..."
	}
	return fmt.Errorf("unexpected reply %q: is another script behind a proxy answering?", said)
}

// cut shortens a value for an error, in length and in number of elements.
func cut(value any) any {
	switch v := value.(type) {
	case string:
		return v[:min(len(v), maxShown+1)]
	case []any:
		some := make([]any, min(len(v), maxShown))
		for i := range some {
			some[i] = cut(v[i])
		}
		return some
	}
	return value
}
