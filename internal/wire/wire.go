// Package wire encodes calls of the Lua scripts in package scripts and decodes their replies. It
// has one constructor and one parser for each script, and the names of keys and channels.
package wire

import (
	"crypto/fips140"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/settings"
	"github.com/quorumlock/quorumlock/scripts"
)

var (
	acquire         = newScript("acquire", lua("acquire"))
	guardedAcquire  = newScript("acquire", lua("guard")+lua("acquire"))
	share           = newScript("share", lua("share"))
	guardedShare    = newScript("share", lua("guard")+lua("share"))
	downgrade       = newScript("downgrade", lua("downgrade"))
	raise           = newScript("raise", lua("raise"))
	renew           = newScript("renew", lua("renew"))
	transfer        = newScript("transfer", lua("transfer"))
	guardedTransfer = newScript("transfer", alwaysGuarded(lua("guard"))+lua("transfer"))
	release         = newScript("release", lua("release"))
	forceRelease    = newScript("force_release", lua("force_release"))
	open            = newScript("open", lua("open"))
	leave           = newScript("leave", lua("leave"))
	inspect         = newScript("inspect", lua("inspect"))
)

// Scripts returns all scripts of this package. A script with a guard has the name of the one
// without.
func Scripts() []*Script {
	return []*Script{
		acquire, guardedAcquire, share, guardedShare, downgrade, raise, renew, transfer, guardedTransfer, release, forceRelease, open, leave, inspect,
		slotAcquire, guardedSlotAcquire, slotRelease, slotLeave, slotRenew, slotRaise, slotInspect, slotForceRelease,
		latch, proclaim, withdraw, leader, ready, guardedReady,
	}
}

// Script is the source of a script. It is immutable once the program has started.
type Script struct {
	Name   string // file name in package scripts, without the extension
	Source string
	Letter byte // names the script in a bundle; 0 if bundles exclude it

	hash sync.Once // of sha
	sha  string
}

// SHA returns the SHA-1 of the source, which EVALSHA takes.
func (s *Script) SHA() string {
	s.hash.Do(func() { s.sha = SHA1(s.Source) })
	return s.sha
}

// SHA1 returns the SHA-1 of a text in hexadecimal digits, as redis.sha1hex does. Redis names
// scripts by it, and its Lua has no other hash, so it is computed under GODEBUG=fips140=only, too.
func SHA1(text string) (digits string) {
	fips140.WithoutEnforcement(func() {
		sum := sha1.Sum([]byte(text))
		digits = hex.EncodeToString(sum[:])
	})
	return digits
}

// lua returns a file of package scripts with each include line replaced by the file that it names.
// A script may include a file late, so that runs that return earlier do not pay for it.
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

// file returns a file of package scripts, with its include lines.
func file(name string) string {
	b, err := scripts.Files.ReadFile(name + ".lua")
	if err != nil {
		panic(err) // only at start, for a name that package scripts lacks
	}
	return string(b)
}

// replace replaces a part of a script, which must be there once. The program ends at its start
// otherwise, and so does every test.
func replace(source, part, with string) string {
	if strings.Count(source, part) != 1 {
		panic(fmt.Sprintf("quorumlock: a script has %d times %q", strings.Count(source, part), part))
	}
	return strings.Replace(source, part, with, 1)
}

func newScript(name, source string) *Script {
	return &Script{Name: name, Source: source}
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

// UnlockChannel returns the channel on which releases of the lock are published. The message is
// zeros: "0" from Redisson's clients, two or more from this library's.
func UnlockChannel(name string) string { return string(appendPrefixed(nil, channelPrefix, "", name)) }

// FairQueueKey returns the key of Redisson's list of waiters for a fair lock. The scripts read it.
func FairQueueKey(name string) string { return string(appendPrefixed(nil, fairPrefix, "", name)) }

// QueueKey returns the key of a lock's queue of waiters.
func QueueKey(name string) string {
	return string(appendPrefixed(nil, queuePrefix, braced(name), name))
}

// EntriesKey returns the key of the waiters' entries.
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

// WakeChannel returns the channel on which a node calls a client's waiters.
func WakeChannel(client string) string { return "quorumlock_wake:" + client }

// ShardWakeChannel is WakeChannel in a cluster with shard channels. There is one for each lock, in
// the cluster slot of the lock.
func ShardWakeChannel(name, client string) string {
	return "quorumlock_wake" + QueueKey(name)[len(queuePrefix):] + " " + client
}

// Sharded returns the script for a cluster with shard channels: it uses SPUBLISH.
func (s *Script) Sharded() *Script {
	return newScript(s.Name, strings.NewReplacer(
		"redis.pcall('publish', 'quorumlock_wake:' .. client,", "redis.pcall('spublish', 'quorumlock_wake' .. string.sub(KEYS[2], 17) .. ' ' .. client,",
		"redis.pcall('publish',", "redis.pcall('spublish',",
	).Replace(s.Source))
}

// appendPrefixed appends the key of name under a prefix. It puts name in braces, so that a cluster
// keeps the key in the slot of the lock; a name that has braces is used unchanged. (Redisson:
// RedissonObject.prefixName.)
func appendPrefixed(b []byte, prefix, suffix, name string) []byte {
	b = append(append(b, prefix...), suffix...)
	if strings.Contains(name, "{") {
		return append(append(b, ':'), name...)
	}
	b = append(append(b, ":{"...), name...)
	return append(b, '}')
}

// SameSlot reports whether a cluster keeps all keys of the lock name at one server. It does not if
// the name has braces that form no hash tag, as in "a{b" or "a}b": Redisson's form of keys expects
// one.
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
	Ticket    int64         // time of the call, in µs since 1970: orders the queue
	Unsure    bool          // the client has read too few nodes' clocks: see join.lua
	TTL       time.Duration // how long the entry is kept without a refresh
	Callers   int           // the number of calls in its process that it stands for
	Several   bool          // it also waits for other locks
	Passable  bool          // sharers need not wait behind it: see queue.lua
	Successor Successor

	// These two are not sent. Attempts with the same Queue should reach a node in the order in
	// which they were made, unless Decided of the earlier one is closed. Queue must be comparable.
	// Attempts without one have no order.
	Queue   any
	Decided <-chan struct{}
}

// Successor is the owner that receives the lock in a handoff when the waiter's turn comes. The zero
// value means that nothing is handed over.
type Successor struct {
	Attempt int // of the waiter
	TTL     time.Duration
	Cell    int // repeated in the handoff's message
	// Authenticates the handoff's message.
	Secret string
}

// OfCell returns the owner as one cell of a lock stores it. Each cell has its own owner, so a
// server with two addresses cannot count twice.
func OfCell(owner quorumlock.Owner, cell int) quorumlock.Owner {
	return quorumlock.Owner(appendOfCell(nil, string(owner), cell))
}

func appendOfCell(b []byte, owner string, cell int) []byte {
	b = append(append(b, owner...), '.')
	return strconv.AppendInt(b, int64(cell), 10)
}

// Base returns the owner of a hold, given the owner at one of its cells. It returns an owner
// without a cell unchanged.
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
		return owner // the number is the attempt's
	}
	return base
}

// cellOf returns the cell of an owner that is not its own base.
func cellOf(owner quorumlock.Owner) int32 {
	n, _ := strconv.ParseInt(string(owner[strings.LastIndexByte(string(owner), '.')+1:]), 10, 32)
	return int32(n)
}

// OwnerOf returns the owner for one attempt of a waiter.
func OwnerOf(waiter quorumlock.Owner, attempt int) quorumlock.Owner {
	return waiter + "." + quorumlock.Owner(strconv.Itoa(attempt))
}

// SuccessorOf returns the successor for one attempt of a waiter.
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
	token   string // as in the message, with the slot
}

// ParseHandoff parses a message, without its leading "handoff ".
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
		if h.Slot, err = strconv.Atoi(of); err != nil || h.Slot < 0 || h.Slot >= settings.MaxPermits {
			return h, false
		}
	}
	return h, true
}

// ProvenBy reports whether the message comes from a node: only the nodes and the waiter know its
// secret. It is false for an empty secret, that of a TryLock, which gets no handoffs.
func (h Handoff) ProvenBy(secret string) bool {
	said := fmt.Sprintf("%s %s %d %d %s %s %s", secret, string(h.Waiter), h.Attempt, h.Cell, h.token, h.Lock, secret)
	return secret != "" && subtle.ConstantTimeCompare([]byte(SHA1(said)), []byte(h.proof)) == 1
}

// String returns the entry in the form that the scripts take.
func (e Entry) String() string { return string(e.appendAt(nil, &arg{number: int64(e.Successor.Cell)})) }

// appendAt appends the entry for the cell in a.number: see queue.lua. a.text is empty, "s" for a
// share, or `k<permits>p<slot>` for a slot. Then follow the range of cells that may lead to the
// same server, if there are several, and "m" for a share of a waiter for several locks.
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

// Acquire makes owner the holder of the lock name for ttl, if nobody is queued (hold 1). Hold n
// re-enters it from a count of n−1. The token of a new grant is at least hint.
func Acquire(name string, owner quorumlock.Owner, ttl time.Duration, hold int, hint uint64) Call {
	how := text("try")
	if hold > 1 {
		how = number(hold)
	}
	return acquireAs(how, name, owner, ttl, hint)
}

// AcquireInTurn is Acquire for a waiter. If the lock is not granted, the waiter is queued with e.
func AcquireInTurn(name string, owner quorumlock.Owner, ttl time.Duration, hint uint64, e Entry) Call {
	return AcquireQueued(name, owner, ttl, hint, &e, e.Successor.Cell)
}

// AcquireQueued is AcquireInTurn with the entry for one cell of the lock. The entry must not change
// until the call is sent.
func AcquireQueued(name string, owner quorumlock.Owner, ttl time.Duration, hint uint64, e *Entry, cell int) Call {
	c := acquireAs(arg{kind: aEntry, number: int64(cell)}, name, owner, ttl, hint)
	c.entry = e
	return c
}

// Restore is Acquire for a holder after the node has lost its key. It passes the queue.
func Restore(name string, owner quorumlock.Owner, ttl time.Duration, token uint64) Call {
	return acquireAs(text(keep), name, owner, ttl, token)
}

// keep is the mode of a Restore; the number of permits follows for a semaphore.
const keep = "keep"

func acquireAs(how arg, name string, owner quorumlock.Owner, ttl time.Duration, hint uint64) Call {
	return newCall(acquire, name, lockAll, who(owner), ms(ttl), number(hint), how)
}

// Raise raises the token counter of a lock that owner holds to token. own is the token that owner
// got at this node; if the counter has another value, nothing changes.
func Raise(name string, owner quorumlock.Owner, ttl time.Duration, own, token uint64) Call {
	return newCall(raise, name, lockToken, who(owner), ms(ttl), number(own), number(token))
}

// Renew gives a lock that owner holds a fresh ttl.
func Renew(name string, owner quorumlock.Owner, ttl time.Duration) Call {
	return newCall(renew, name, lockToken, who(owner), ms(ttl))
}

// Park passes the hold of owner to another one, for ttl.
func Park(name string, owner, other quorumlock.Owner, ttl time.Duration, cell int) Call {
	return passAs(name, owner, other, cell, cell, text("park"), ms(ttl))
}

// Attach passes the hold of another owner, at that owner's cell of, to owner, unless the node has
// counted a token after last. The key keeps its expiry.
func Attach(name string, owner, other quorumlock.Owner, last uint64, cell, of int) Call {
	return passAs(name, owner, other, cell, of, number(last))
}

// Return passes the hold of owner to another owner, at that owner's cell of. The key keeps its
// expiry.
func Return(name string, owner, other quorumlock.Owner, cell, of int) Call {
	return passAs(name, owner, other, cell, of, text("back"))
}

// passAs is a call for a cell: see Call.At.
func passAs(name string, owner, other quorumlock.Owner, cell, of int, how ...arg) Call {
	args := append([]arg{who(owner), {kind: aOwner, text: string(other), number: int64(of)}}, how...)
	return newCall(transfer, name, lockToken, args...).At(cell)
}

// Downgrade turns a hold of owner into a share with a fresh ttl. It renews an existing share.
func Downgrade(name string, owner quorumlock.Owner, ttl time.Duration) Call {
	return newCall(downgrade, name, lockAll, who(owner), ms(ttl))
}

// Release leaves entry number hold of owner, so that hold−1 are left. Hold 1 releases the lock.
func Release(name string, owner quorumlock.Owner, hold int) Call {
	return newCall(release, name, lockAll, who(owner), number(hold), channel())
}

// ReleaseAndLeave is Release and Leave in one. If all is true, it also releases the holds of the
// waiter's successors.
func ReleaseAndLeave(name string, owner, waiter quorumlock.Owner, all bool) Call {
	if all {
		return newCall(release, name, lockAll, who(owner), number(1), channel(), who(waiter), text(""), text("all"))
	}
	return newCall(release, name, lockAll, who(owner), number(1), channel(), who(waiter), text(""))
}

// Open turns a Release of a whole hold, or a ReleaseAndLeave, of a lock that nobody shares into one
// that allows for Redisson's clients. It returns other calls unchanged.
//
// During the window, place has the first entry in the queue, and no client of this library gets the
// lock. A window of 0 hands the lock to the first in the queue, even if Redisson's clients listen.
// A negative window of −d is a window of d before any Redisson client has been observed.
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

// IsTheirs reports whether a message on the channel of a lock announces a release by one of
// Redisson's clients. Otherwise one of this library's has released the lock, handed it over or made
// it end earlier, and window is how long the lock is left to Redisson's clients.
func IsTheirs(message string) (theirs bool, window time.Duration) {
	switch {
	case message == "2", message == "01":
		return false, 0
	case len(message) < 2 || strings.Trim(message, "0") != "":
		return true, 0
	}
	return false, time.Duration(max(len(message)-3, 0)) * time.Millisecond
}

// GivesUp reports whether such a message announces an abandoned attempt, or an earlier end: no hold
// has ended.
func GivesUp(message string) bool { return message == "00" || message == "01" }

// IsRedisson reports whether an owner is not this library's, and so most likely Redisson's.
func IsRedisson(owner quorumlock.Owner) bool {
	return owner != "" && !strings.Contains(string(owner), "~")
}

// Yield releases everything that an attempt has of the lock, and queues its waiter again.
func Yield(name string, owner quorumlock.Owner, e Entry) Call {
	c := newCall(release, name, lockAll, who(owner), number(1), channel(), who(e.Waiter), arg{kind: aEntry, number: int64(e.Successor.Cell)})
	c.entry = &e
	return c
}

// Leave takes waiter out of the queue. If all is true, it also releases the holds of its
// successors.
func Leave(name string, waiter quorumlock.Owner, all bool) Call {
	which := "none"
	if all {
		which = "all"
	}
	return newCall(leave, name, lockQueue, who(waiter), text(which), channel())
}

// Through adds the waiter's last attempt and the cell to a Leave. Where many share the lock, the
// node then finds the waiter's successors by name.
func (c Call) Through(attempt, cell int) Call {
	c.add(arg{kind: aRange, number: int64(attempt)<<32 | int64(cell)})
	return c
}

// ForceRelease releases the lock for all owners.
func ForceRelease(name string) Call {
	return newCall(forceRelease, name, lockQueue, channel())
}

// Inspect reads the state of a lock and its first waiters, at most waiters of them.
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
