// Package wire calls the Lua of package scripts: it has one constructor and one parser for each script, and the names of
// the keys and channels.
package wire

import (
	"crypto/sha1"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/scripts"
)

var (
	acquire        = newScript("acquire", lua("acquire"))
	guardedAcquire = newScript("acquire", lua("guard")+lua("acquire"))
	share          = newScript("share", lua("share"))
	guardedShare   = newScript("share", lua("guard")+lua("share"))
	downgrade      = newScript("downgrade", lua("downgrade"))
	raise          = newScript("raise", lua("raise"))
	renew          = newScript("renew", lua("renew"))
	pass           = newScript("pass", lua("pass"))
	guardedPass    = newScript("pass", alwaysGuarded(lua("guard"))+lua("pass"))
	release        = newScript("release", lua("release"))
	forceRelease   = newScript("force_release", lua("force_release"))
	open           = newScript("open", lua("open"))
	leave          = newScript("leave", lua("leave"))
	inspect        = newScript("inspect", lua("inspect"))
)

// Scripts are the scripts of this package. A guarded one has the same name as the one without the guard.
func Scripts() []*Script {
	return []*Script{
		acquire, guardedAcquire, share, guardedShare, downgrade, raise, renew, pass, guardedPass, release, forceRelease, open, leave, inspect,
		slotAcquire, guardedSlotAcquire, slotRelease, slotLeave, slotRenew, slotRaise, slotInspect, slotForceRelease,
		latch, proclaim, withdraw, leader, ready, guardedReady,
	}
}

// Script is the source of a script and the SHA-1 by which a node knows it. It is immutable once the program has started.
type Script struct {
	Name   string // of its file in package scripts
	Source string
	SHA    string
}

// lua returns the file of that name from package scripts, with each include line replaced by the file that it names. A script may include
// a file late, so that a run that ends earlier does not pay for it.
func lua(name string) string {
	var b strings.Builder
	for rest := file(name); ; {
		before, after, found := strings.Cut(rest, "-- include ")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		included, after, _ := strings.Cut(after, ".lua\n")
		b.WriteString(lua(included))
		rest = after
	}
}

// file returns the file of that name as it is.
func file(name string) string {
	b, err := scripts.Files.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // while the program starts: this package, or an include line, names a file that is not there
	}
	return string(b)
}

func newScript(name, source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{Name: name, Source: source, SHA: hex.EncodeToString(sum[:])}
}

const (
	tokenPrefix   = "redisson_lock_token"
	channelPrefix = "redisson_lock__channel"
	fairPrefix    = "redisson_lock_queue"
	queuePrefix   = "quorumlock_queue"
	entriesPrefix = "quorumlock_waiters"
)

// TokenKey returns the key of a lock's fencing token.
func TokenKey(name string) string { return string(appendPrefixed(nil, tokenPrefix, "", name)) }

// UnlockChannel returns the channel on which a release of the lock is published, with a
// message of zeros: Redisson's clients publish "0", and those of this library at least "00".
func UnlockChannel(name string) string { return string(appendPrefixed(nil, channelPrefix, "", name)) }

// FairQueueKey returns the key of the list in which Redisson keeps who waits for a fair lock. The scripts read it.
func FairQueueKey(name string) string { return string(appendPrefixed(nil, fairPrefix, "", name)) }

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

// ShardWakeChannel returns the channel on which a client's waiters for a lock are called in a cluster with shard channels: it is
// in the slot of the lock.
func ShardWakeChannel(name, client string) string {
	return "quorumlock_wake" + QueueKey(name)[len(queuePrefix):] + " " + client
}

// Sharded returns the script for a cluster with shard channels.
func (s *Script) Sharded() *Script {
	return newScript(s.Name, strings.NewReplacer(
		"redis.pcall('publish', 'quorumlock_wake:' .. client,", "redis.pcall('spublish', 'quorumlock_wake' .. string.sub(KEYS[2], 17) .. ' ' .. client,",
		"redis.pcall('publish',", "redis.pcall('spublish',",
	).Replace(s.Source))
}

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
	Ticket    int64         // µs of the call: the queue is in this order
	Unsure    bool          // the client knows the clocks of too few nodes: see join.lua
	TTL       time.Duration // how long the entry is kept without a refresh
	Callers   int           // the calls of its process that it stands for
	Several   bool          // it waits for other locks, too
	Passable  bool          // those who want to share the lock need not wait behind it: see queue.lua
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

// cellOf returns the cell of an owner that is not its own base.
func cellOf(owner quorumlock.Owner) int32 {
	n, _ := strconv.ParseInt(string(owner[strings.LastIndexByte(string(owner), '.')+1:]), 10, 32)
	return int32(n)
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
	Slot    int // of a semaphore
	proof   string
	token   string // as the message has it, with the slot
}

// ParseHandoff reads what follows `handoff ` in a message.
func ParseHandoff(rest string) (h Handoff, ok bool) {
	f := strings.SplitN(rest, " ", 6)
	if len(f) < 6 {
		return h, false
	}
	attempt, err := strconv.Atoi(f[1])
	cell, err2 := strconv.Atoi(f[2])
	number, of, semaphore := strings.Cut(f[3], "@")
	token, err3 := strconv.ParseUint(number, 10, 64)
	if err != nil || err2 != nil || err3 != nil {
		return h, false
	}
	h = Handoff{Waiter: quorumlock.Owner(f[0]), Attempt: attempt, Cell: cell, Token: token, Lock: f[5], proof: f[4], token: f[3]}
	if semaphore {
		if h.Slot, err = strconv.Atoi(of); err != nil || h.Slot < 0 || h.Slot >= quorumlock.MaxPermits {
			return h, false
		}
	}
	return h, true
}

// ProvenBy reports whether the message comes from a node: only the nodes and the waiter know its secret. A call of TryLock has none,
// and is handed nothing.
func (h Handoff) ProvenBy(secret string) bool {
	said := fmt.Sprintf("%s %s %d %d %s %s %s", secret, string(h.Waiter), h.Attempt, h.Cell, h.token, h.Lock, secret)
	sum := sha1.Sum([]byte(said))
	return secret != "" && subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum[:])), []byte(h.proof)) == 1
}

// String returns the entry in the form that the scripts take.
func (e Entry) String() string { return string(e.appendAt(nil, &arg{number: int64(e.Successor.Cell)})) }

// appendAt appends the entry for the cell in a.number. a.text is "s" for a share, and `k<permits>p<slot>` for a slot. The
// cells that may lead to the same server follow, if there are any, and "m" for a share of a waiter for several locks.
func (e *Entry) appendAt(b []byte, a *arg) []byte {
	cell, first, last := a.number&cellMask, a.number>>cellBits&cellMask, a.number>>(2*cellBits)
	b = append(append(b, e.Waiter...), ' ')
	b = strconv.AppendInt(b, e.Ticket, 10)
	if e.Unsure {
		b = append(b, '?')
	}
	b = append(b, ' ')
	b = append(strconv.AppendInt(b, milliseconds(e.TTL), 10), ' ')
	b = strconv.AppendInt(b, int64(max(e.Callers, 1)), 10)
	if b = append(b, a.text...); a.text == "" && e.Passable {
		b = append(b, 't')
	}
	if last > first && e.Successor.TTL > 0 {
		b = append(strconv.AppendInt(b, first, 10), '-')
		b = strconv.AppendInt(b, last, 10)
	}
	if a.text == "s" && e.Several {
		b = append(b, 'm')
	}
	b = append(b, ' ')
	if s := e.Successor; s.TTL > 0 {
		b = append(strconv.AppendInt(b, milliseconds(s.TTL), 10), ' ')
		b = append(strconv.AppendInt(b, cell, 10), ' ')
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
	c := acquireAs(arg{kind: aEntry, number: int64(cell)}, name, owner, ttl, hint)
	c.entry = e
	return c
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

// Park passes the hold of owner to another one, for ttl.
func Park(name string, owner, other quorumlock.Owner, ttl time.Duration, cell int) Call {
	return passAs(text("park"), name, owner, other, ttl, cell, cell)
}

// Attach passes the hold of another owner, as his cell of has it, to owner, for ttl at least, unless the node has counted a token after last.
func Attach(name string, owner, other quorumlock.Owner, ttl time.Duration, last uint64, cell, of int) Call {
	return passAs(number(last), name, owner, other, ttl, cell, of)
}

// Return passes the hold of owner to another one, at his cell of. The key expires when it would have.
func Return(name string, owner, other quorumlock.Owner, cell, of int) Call {
	return passAs(text("back"), name, owner, other, 0, cell, of)
}

// passAs is a call for a cell: see Call.At.
func passAs(how arg, name string, owner, other quorumlock.Owner, ttl time.Duration, cell, of int) Call {
	return newCall(pass, name, lockToken, who(owner), arg{kind: aOwner, text: string(other), number: int64(of)}, ms(ttl), how).At(cell)
}

// Downgrade lets others share a lock that owner holds, and gives its share a fresh ttl. It is Renew if owner shares the lock.
func Downgrade(name string, owner quorumlock.Owner, ttl time.Duration) Call {
	return newCall(downgrade, name, lockAll, who(owner), ms(ttl))
}

// Release leaves the entry hold of owner, so that hold−1 are left; hold 1 releases the lock.
func Release(name string, owner quorumlock.Owner, hold int) Call {
	return newCall(release, name, lockAll, who(owner), number(hold), channel())
}

// ReleaseAndLeave is Release and Leave in one. If all is true, it also releases what the waiter's
// successors have.
func ReleaseAndLeave(name string, owner, waiter quorumlock.Owner, all bool) Call {
	if all {
		return newCall(release, name, lockAll, who(owner), number(1), channel(), who(waiter), text(""), text("all"))
	}
	return newCall(release, name, lockAll, who(owner), number(1), channel(), who(waiter), text(""))
}

// Open makes a release open to clients of Redisson's, if it is a Release of a whole hold, or a ReleaseAndLeave, of a lock that
// nobody shares. During the window nobody of this library's gets the lock: place keeps the others out. A release with a window of 0 is
// for the first in the queue even if somebody listens to Redisson's channel. A negative one is a window in which a client of
// Redisson's may be met for the first time. Other calls do not change.
func (c Call) Open(window time.Duration, place quorumlock.Owner) Call {
	if c.Script != release || c.args[1] != number(1) || c.args[4].kind == aEntry {
		return c
	}
	waiter, all := text(""), text("")
	if c.count > 3 {
		waiter, all = c.args[3], c.args[5]
	}
	owner := c.args[0]
	c.Script, c.count = open, 0
	c.add(owner, channel(), ms(window), who(place), waiter, all)
	return c
}

// IsTheirs reports whether a message on the channel of a lock says that a client of Redisson's has released it. Otherwise a
// client of this library's has, or has handed it over; window is for how long it leaves the lock to Redisson's clients.
func IsTheirs(message string) (theirs bool, window time.Duration) {
	switch {
	case message == "2":
		return false, 0
	case len(message) < 2 || strings.Trim(message, "0") != "":
		return true, 0
	}
	return false, time.Duration(max(len(message)-3, 0)) * time.Millisecond
}

// GivesUp reports whether such a message says that an attempt has given up what it had: no hold has ended.
func GivesUp(message string) bool { return message == "00" }

// IsStranger reports whether an owner is none of a client of this library's, but of Redisson's, most likely.
func IsStranger(owner quorumlock.Owner) bool {
	return owner != "" && !strings.Contains(string(owner), "~")
}

// Yield releases what an attempt has got of the lock, if anything, and queues its waiter again.
func Yield(name string, owner quorumlock.Owner, e Entry) Call {
	c := newCall(release, name, lockAll, who(owner), number(1), channel(), who(e.Waiter), arg{kind: aEntry, number: int64(e.Successor.Cell)})
	c.entry = &e
	return c
}

// Leave takes waiter out of the queue. If all is true, it also releases what the waiter's successors have.
func Leave(name string, waiter quorumlock.Owner, all bool) Call {
	which := "none"
	if all {
		which = "all"
	}
	return newCall(leave, name, lockQueue, who(waiter), text(which), channel())
}

// Through says which was the last attempt of the waiter of a Leave, and at which cell: then a node finds the waiter's successors by
// name, where many share the lock.
func (c Call) Through(attempt, cell int) Call {
	c.add(arg{kind: aRange, number: int64(attempt)<<32 | int64(cell)})
	return c
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
