// Package scripts holds the Lua that decides on a node, and the Go that calls it: one .lua file for
// each operation, whose header names its KEYS, ARGV and reply, and one constructor and one parser
// here. Keys, hash and channel are Redisson's, so that its clients and this library share locks.
//
// Programs use it through packages node, redlock and multilock.
package scripts

import (
	"crypto/sha1"
	"crypto/subtle"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
)

//go:embed acquire.lua
var acquireSource string

//go:embed raise.lua
var raiseSource string

//go:embed renew.lua
var renewSource string

//go:embed release.lua
var releaseSource string

//go:embed force_release.lua
var forceReleaseSource string

//go:embed leave.lua
var leaveSource string

//go:embed inspect.lua
var inspectSource string

//go:embed queue.lua
var queueSource string

//go:embed guard.lua
var guardSource string

var (
	acquire      = newScript(withQueue(acquireSource))
	guarded      = newScript(guardSource + withQueue(acquireSource))
	raise        = newScript(raiseSource)
	renew        = newScript(renewSource)
	release      = newScript(withQueue(releaseSource))
	forceRelease = newScript(withQueue(forceReleaseSource))
	leave        = newScript(withQueue(leaveSource))
	inspect      = newScript(inspectSource)
)

// Script is the source of a script and the SHA-1 by which a node knows it. It is immutable.
type Script struct {
	Source string
	SHA    string
}

// withQueue puts queue.lua where a script includes it: a run that ends before that point does not pay
// for it.
func withQueue(source string) string {
	return strings.Replace(source, "-- include queue.lua\n", queueSource, 1)
}

func newScript(source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{Source: source, SHA: hex.EncodeToString(sum[:])}
}

const (
	tokenPrefix   = "redisson_lock_token"
	channelPrefix = "redisson_lock__channel"
	queuePrefix   = "quorumlock_queue"
	entriesPrefix = "quorumlock_waiters"
)

// TokenKey returns the key of a lock's fencing token.
func TokenKey(name string) string { return string(appendPrefixed(nil, tokenPrefix, "", name)) }

// UnlockChannel returns the channel on which a release of the lock is published, with the message "0".
func UnlockChannel(name string) string { return string(appendPrefixed(nil, channelPrefix, "", name)) }

// QueueKey returns the key of a lock's queue of waiters.
func QueueKey(name string) string {
	return string(appendPrefixed(nil, queuePrefix, braced(name), name))
}

// EntriesKey returns the key of what a node stores of a lock's waiters.
func EntriesKey(name string) string {
	return string(appendPrefixed(nil, entriesPrefix, braced(name), name))
}

// braced keeps the queues of x and {x} apart. (Redisson's keys of the two are the same.)
func braced(name string) string {
	if strings.Contains(name, "{") {
		return "*"
	}
	return ""
}

// WakeChannel returns the channel on which a client's waiters are called.
func WakeChannel(client string) string { return "quorumlock_wake:" + client }

// appendPrefixed puts name in braces, so that a cluster keeps the key beside the lock's own; a name with
// braces of its own is used as it is. (Redisson: RedissonObject.prefixName.)
func appendPrefixed(b []byte, prefix, suffix, name string) []byte {
	b = append(append(b, prefix...), suffix...)
	if strings.Contains(name, "{") {
		return append(append(b, ':'), name...)
	}
	b = append(append(b, ":{"...), name...)
	return append(b, '}')
}

// SameSlot reports whether a cluster keeps all keys of a lock of that name at one server. It does not if the name has a
// brace that makes no hash tag, such as "a{b" or "a}b": the keys have Redisson's form, which takes the name for the tag.
func SameSlot(name string) bool {
	_, tag, braced := strings.Cut(name, "{")
	if !braced {
		return !strings.Contains(name, "}")
	}
	return strings.IndexByte(tag, '}') > 0
}

// Entry is a waiter's entry in the queue of a lock at one node.
type Entry struct {
	Waiter    quorumlock.Owner
	Ticket    int64         // wall-clock µs of the call: the queue is in this order
	TTL       time.Duration // how long the entry is kept without a refresh
	Callers   int           // the calls of its process that it stands for
	Successor Successor
}

// Successor is the owner to whom the lock may be handed when a waiter's turn comes. The zero value is nobody.
type Successor struct {
	Attempt int // of the waiter
	TTL     time.Duration
	Cell    int    // the message of the handoff repeats it
	Secret  string // proves that the message comes from the node
}

// OfCell returns the owner as one cell of a lock stores it. Each cell has its own, so two addresses of one
// server cannot both say that they granted.
func OfCell(owner quorumlock.Owner, cell int) quorumlock.Owner {
	return quorumlock.Owner(appendOfCell(nil, string(owner), cell))
}

func appendOfCell(b []byte, owner string, cell int) []byte {
	b = append(append(b, owner...), '.')
	return strconv.AppendInt(b, int64(cell), 10)
}

// Base returns the owner of a hold, given the owner at one of its cells. An owner without a cell is its own base.
func Base(owner quorumlock.Owner) quorumlock.Owner {
	end := len(owner)
	for end > 0 && '0' <= owner[end-1] && owner[end-1] <= '9' {
		end--
	}
	if end == len(owner) || end == 0 || owner[end-1] != '.' {
		return owner
	}
	base := owner[:end-1]
	if i := strings.LastIndexByte(string(base), ':'); i < 0 || !strings.ContainsAny(string(base[i:]), "./") {
		return owner // what ends it is an attempt
	}
	return base
}

// OwnerOf returns the owner of a waiter's attempt.
func OwnerOf(waiter quorumlock.Owner, attempt int) quorumlock.Owner {
	return waiter + "." + quorumlock.Owner(strconv.Itoa(attempt))
}

// SuccessorOf returns the owner that is the successor of a waiter's attempt.
func SuccessorOf(waiter quorumlock.Owner, attempt int) quorumlock.Owner {
	return waiter + "/" + quorumlock.Owner(strconv.Itoa(attempt))
}

// Handoff is the message that a node has granted a lock to a successor.
type Handoff struct {
	Waiter  quorumlock.Owner
	Attempt int
	Cell    int
	Token   uint64
	Lock    string
	proof   string
}

// ParseHandoff reads what follows `handoff ` in a message.
func ParseHandoff(rest string) (h Handoff, ok bool) {
	f := strings.SplitN(rest, " ", 6)
	if len(f) < 6 {
		return h, false
	}
	attempt, err := strconv.Atoi(f[1])
	cell, err2 := strconv.Atoi(f[2])
	token, err3 := strconv.ParseUint(f[3], 10, 64)
	if err != nil || err2 != nil || err3 != nil {
		return h, false
	}
	return Handoff{quorumlock.Owner(f[0]), attempt, cell, token, f[5], f[4]}, true
}

// ProvenBy reports whether the message comes from a node: only the nodes and the waiter know its secret.
func (h Handoff) ProvenBy(secret string) bool {
	said := fmt.Sprintf("%s %s %d %d %d %s %s", secret, string(h.Waiter), h.Attempt, h.Cell, h.Token, h.Lock, secret)
	sum := sha1.Sum([]byte(said))
	return subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum[:])), []byte(h.proof)) == 1
}

// String returns the entry in the form that the scripts take.
func (e Entry) String() string { return string(e.appendAt(nil, e.Successor.Cell)) }

// appendAt appends the entry as one cell of the lock has it.
func (e *Entry) appendAt(b []byte, cell int) []byte {
	b = append(append(b, e.Waiter...), ' ')
	b = append(strconv.AppendInt(b, e.Ticket, 10), ' ')
	b = append(strconv.AppendInt(b, milliseconds(e.TTL), 10), ' ')
	b = append(strconv.AppendInt(b, int64(max(e.Callers, 1)), 10), ' ')
	if s := e.Successor; s.TTL > 0 {
		b = append(strconv.AppendInt(b, milliseconds(s.TTL), 10), ' ')
		b = append(strconv.AppendInt(b, int64(cell), 10), ' ')
		b = append(strconv.AppendInt(b, int64(s.Attempt), 10), ' ')
		b = append(b, s.Secret...)
	}
	return b
}

// Acquire makes owner the holder of the lock name for ttl (hold 1), or enters it once more (hold n
// when n−1 entries are held), if nobody is queued. A new grant's token is at least hint.
func Acquire(name string, owner quorumlock.Owner, ttl time.Duration, hold int, hint uint64) Call {
	how := text("try")
	if hold > 1 {
		how = number(hold)
	}
	return acquireAs(how, name, owner, ttl, hint)
}

// AcquireInTurn is Acquire for a waiter: if it is not granted, it is queued with that entry.
func AcquireInTurn(name string, owner quorumlock.Owner, ttl time.Duration, hint uint64, e Entry) Call {
	return AcquireQueued(name, owner, ttl, hint, &e, e.Successor.Cell)
}

// AcquireQueued is AcquireInTurn with the entry as one cell of the lock has it. The entry must not change until
// the call is sent.
func AcquireQueued(name string, owner quorumlock.Owner, ttl time.Duration, hint uint64, e *Entry, cell int) Call {
	return acquireAs(arg{kind: aEntry, entry: e, number: int64(cell)}, name, owner, ttl, hint)
}

// Restore is Acquire for a holder whose key the node has lost. It passes the queue.
func Restore(name string, owner quorumlock.Owner, ttl time.Duration, token uint64) Call {
	return acquireAs(text("keep"), name, owner, ttl, token)
}

func acquireAs(how arg, name string, owner quorumlock.Owner, ttl time.Duration, hint uint64) Call {
	return newCall(acquire, name, lockAll, who(owner), ms(ttl), number(hint), how)
}

// Raise brings the token counter of a lock that owner holds from own, the token it got at this node,
// to token.
func Raise(name string, owner quorumlock.Owner, ttl time.Duration, own, token uint64) Call {
	return newCall(raise, name, lockToken, who(owner), ms(ttl), number(own), number(token))
}

// Renew gives a lock that owner holds a fresh ttl.
func Renew(name string, owner quorumlock.Owner, ttl time.Duration) Call {
	return newCall(renew, name, lockToken, who(owner), ms(ttl))
}

// Release leaves the entry hold of owner, so that hold−1 are left; hold 1 releases the lock.
func Release(name string, owner quorumlock.Owner, hold int) Call {
	return newCall(release, name, lockAll, who(owner), number(hold), channel())
}

// ReleaseAndLeave is Release and Leave in one. If all is true, it also releases what was handed to the waiter's
// successors.
func ReleaseAndLeave(name string, owner, waiter quorumlock.Owner, all bool) Call {
	if all {
		return newCall(release, name, lockAll, who(owner), number(1), channel(), who(waiter), text(""), text("all"))
	}
	return newCall(release, name, lockAll, who(owner), number(1), channel(), who(waiter), text(""))
}

// Yield releases what an attempt has got of the lock, if anything, and queues its waiter again.
func Yield(name string, owner quorumlock.Owner, e Entry) Call {
	return newCall(release, name, lockAll, who(owner), number(1), channel(), who(e.Waiter), text(e.String()))
}

// Leave takes waiter out of the queue. If all is true, it also releases what was handed to any successor of
// the waiter.
func Leave(name string, waiter quorumlock.Owner, all bool) Call {
	which := "none"
	if all {
		which = "all"
	}
	return newCall(leave, name, lockQueue, who(waiter), text(which), channel())
}

// ForceRelease releases the lock, whoever holds it.
func ForceRelease(name string) Call {
	return newCall(forceRelease, name, lockQueue, channel())
}

// Inspect reads the state of a lock and the first of its waiters.
func Inspect(name string, waiters int) Call {
	return newCall(inspect, name, lockAll, number(waiters))
}

// milliseconds rounds up: a key must not expire before its TTL.
func milliseconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}
