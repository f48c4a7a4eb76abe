// Package scripts holds the Lua that decides on a node, and the Go that calls it: one .lua file for
// each operation, whose header names its KEYS, ARGV and reply, and one constructor and one parser
// here. Keys, hash and channel are Redisson's, so that its clients and this library share locks.
//
// Programs use it through packages node, redlock and multilock.
package scripts

import (
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
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

//go:embed line.lua
var lineSource string

//go:embed guard.lua
var guardSource string

var (
	acquire      = newScript(withLine(acquireSource))
	guarded      = newScript(guardSource + withLine(acquireSource))
	raise        = newScript(raiseSource)
	renew        = newScript(renewSource)
	release      = newScript(withLine(releaseSource))
	forceRelease = newScript(withLine(forceReleaseSource))
	leave        = newScript(withLine(leaveSource))
	inspect      = newScript(inspectSource)
)

// Script is the source of a script and the SHA-1 by which a node knows it. It is immutable.
type Script struct {
	Source string
	SHA    string
}

// withLine puts line.lua where a script includes it: no earlier, since those who meet no line shall not
// pay for it.
func withLine(source string) string {
	return strings.Replace(source, "-- include line.lua\n", lineSource, 1)
}

func newScript(source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{Source: source, SHA: hex.EncodeToString(sum[:])}
}

// Call is one run of a script: what to send to a node. All its keys are in one cluster slot, unless the
// lock's name has a brace that makes no hash tag, such as "a{b": a cluster refuses those.
type Call struct {
	Script *Script
	Keys   []string
	Args   []any
}

// TokenKey returns the key of a lock's fencing token.
func TokenKey(name string) string { return prefixed("redisson_lock_token", name) }

// UnlockChannel returns the channel on which a release of the lock is told, with the message "0".
func UnlockChannel(name string) string { return prefixed("redisson_lock__channel", name) }

// LineKey returns the key of a lock's line of waiters.
func LineKey(name string) string { return prefixed("quorumlock_queue"+braced(name), name) }

// DeadlinesKey returns the key of the deadlines of a lock's waiters.
func DeadlinesKey(name string) string { return prefixed("quorumlock_waiters"+braced(name), name) }

// braced keeps the lines of x and {x} apart. (Redisson's keys of the two are the same.)
func braced(name string) string {
	if strings.Contains(name, "{") {
		return "*"
	}
	return ""
}

// WakeChannel returns the channel on which a client's waiters are told of their turn.
func WakeChannel(client string) string { return "quorumlock_wake:" + client }

// prefixed puts name in braces, so that a cluster keeps the key beside the lock's own; a name with
// braces of its own is used as it is. (Redisson: RedissonObject.prefixName.)
func prefixed(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// Place is a waiter's place in line.
type Place struct {
	Waiter quorumlock.Owner
	Ticket int64         // wall-clock µs of its first attempt
	TTL    time.Duration // for how long the place is kept without a refresh
	Heir   Heir
}

// Heir is to whom the lock may be handed when a waiter's turn comes. The zero value is nobody.
type Heir struct {
	Attempt int // of the waiter
	TTL     time.Duration
	Cell    int // comes back with the message that tells of it
}

// HeirOf returns the owner that is the heir of a waiter's attempt.
func HeirOf(waiter quorumlock.Owner, attempt int) quorumlock.Owner {
	return waiter + "/" + quorumlock.Owner(strconv.Itoa(attempt))
}

// AnyHeir stands for every heir of a waiter.
const AnyHeir quorumlock.Owner = "*"

// String is the place as the scripts take it.
func (p Place) String() string {
	b := make([]byte, 0, 160)
	b = append(append(b, p.Waiter...), ' ')
	b = append(strconv.AppendInt(b, p.Ticket, 10), ' ')
	b = append(strconv.AppendInt(b, milliseconds(p.TTL), 10), ' ')
	if p.Heir.TTL > 0 {
		b = append(strconv.AppendInt(b, milliseconds(p.Heir.TTL), 10), ' ')
		b = append(strconv.AppendInt(b, int64(p.Heir.Cell), 10), ' ')
		b = strconv.AppendInt(b, int64(p.Heir.Attempt), 10)
	}
	return string(b)
}

// Acquire makes owner the holder of the lock name for ttl (hold 1), or enters it once more (hold n
// when n−1 entries are held), if nobody stands in line. A new grant's token is at least hint.
func Acquire(name string, owner quorumlock.Owner, ttl time.Duration, hold int, hint uint64) Call {
	return acquireAs("try", name, owner, ttl, hold, hint)
}

// AcquireInTurn is Acquire for a waiter: if it is not granted, it stands in line at p.
func AcquireInTurn(name string, owner quorumlock.Owner, ttl time.Duration, hint uint64, p Place) Call {
	return acquireAs(p.String(), name, owner, ttl, 1, hint)
}

// AcquireAnew is Acquire for a holder whose key the node has lost. It need not stand in line for what
// it has.
func AcquireAnew(name string, owner quorumlock.Owner, ttl time.Duration, token uint64) Call {
	return acquireAs("keep", name, owner, ttl, 1, token)
}

// Guarded makes an acquisition one that a server refuses for that long after its start, unless it has
// the lock. With 0 it is what it was.
func (c Call) Guarded(quarantine time.Duration) Call {
	if quarantine == 0 {
		return c
	}
	return Call{guarded, c.Keys, append(c.Args[:len(c.Args):len(c.Args)], milliseconds(quarantine))}
}

func acquireAs(line, name string, owner quorumlock.Owner, ttl time.Duration, hold int, hint uint64) Call {
	return Call{acquire, append(lineKeys(name), TokenKey(name)), []any{string(owner), milliseconds(ttl), hold, hint, line}}
}

func lineKeys(name string) []string {
	return []string{name, LineKey(name), DeadlinesKey(name)}
}

// Raise brings the token counter of a lock that owner holds from own, the token it got at this node,
// to token.
func Raise(name string, owner quorumlock.Owner, ttl time.Duration, own, token uint64) Call {
	return Call{raise, []string{name, TokenKey(name)}, []any{string(owner), milliseconds(ttl), own, token}}
}

// Renew gives a lock that owner holds a fresh ttl.
func Renew(name string, owner quorumlock.Owner, ttl time.Duration) Call {
	return Call{renew, []string{name, TokenKey(name)}, []any{string(owner), milliseconds(ttl)}}
}

// Release leaves the entry hold of owner, so that hold−1 are left; hold 1 releases the lock.
func Release(name string, owner quorumlock.Owner, hold int) Call {
	return Call{release, append(lineKeys(name), TokenKey(name)), []any{string(owner), hold, UnlockChannel(name), "", ""}}
}

// ReleaseAndLeave is Release and Leave in one.
func ReleaseAndLeave(name string, owner, waiter, heir quorumlock.Owner) Call {
	c := Release(name, owner, 1)
	c.Args[3] = string(waiter)
	c.Args = append(c.Args, string(heir))
	return c
}

// Yield releases what an attempt has got of the lock, if anything, and stands in line at p.
func Yield(name string, owner quorumlock.Owner, p Place) Call {
	return Call{release, append(lineKeys(name), TokenKey(name)), []any{string(owner), 1, UnlockChannel(name), string(p.Waiter), p.String()}}
}

// Leave takes waiter out of the line, if it is not empty, and releases what was handed to heir, which
// may be AnyHeir, or empty.
func Leave(name string, waiter, heir quorumlock.Owner) Call {
	return Call{leave, lineKeys(name), []any{string(waiter), string(heir), UnlockChannel(name)}}
}

// ForceRelease releases the lock, whoever holds it.
func ForceRelease(name string) Call {
	return Call{forceRelease, lineKeys(name), []any{UnlockChannel(name)}}
}

// Inspect reads the state of a lock, with the first of those who wait.
func Inspect(name string, waiters int) Call {
	return Call{inspect, []string{name, LineKey(name), TokenKey(name)}, []any{waiters}}
}

// milliseconds rounds up: a key must not expire before its TTL.
func milliseconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}
