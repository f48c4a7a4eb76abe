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

//go:embed inspect.lua
var inspectSource string

var (
	acquire      = newScript(acquireSource)
	raise        = newScript(raiseSource)
	renew        = newScript(renewSource)
	release      = newScript(releaseSource)
	forceRelease = newScript(forceReleaseSource)
	inspect      = newScript(inspectSource)
)

// Script is the source of a script and the SHA-1 by which a node knows it. It is immutable.
type Script struct {
	Source string
	SHA    string
}

func newScript(source string) *Script {
	sum := sha1.Sum([]byte(source))
	return &Script{Source: source, SHA: hex.EncodeToString(sum[:])}
}

// Call is one run of a script: what to send to a node. All its keys are in one cluster slot.
type Call struct {
	Script *Script
	Keys   []string
	Args   []any
}

// TokenKey returns the key of a lock's fencing token.
func TokenKey(name string) string { return prefixed("redisson_lock_token", name) }

// UnlockChannel returns the channel on which a release of the lock is told, with the message "0".
func UnlockChannel(name string) string { return prefixed("redisson_lock__channel", name) }

// prefixed puts name in braces, so that a cluster keeps the key beside the lock's own; a name with
// braces of its own is used as it is. (Redisson: RedissonObject.prefixName.)
func prefixed(prefix, name string) string {
	if strings.Contains(name, "{") {
		return prefix + ":" + name
	}
	return prefix + ":{" + name + "}"
}

// Acquire makes owner the holder of the lock name for ttl (hold 1), or enters it once more (hold n
// when n−1 entries are held). A new grant's token is at least hint.
func Acquire(name string, owner quorumlock.Owner, ttl time.Duration, hold int, hint uint64) Call {
	return Call{acquire, []string{name, TokenKey(name)}, []any{string(owner), milliseconds(ttl), hold, hint}}
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
	return Call{release, []string{name}, []any{string(owner), hold, UnlockChannel(name)}}
}

// ForceRelease releases the lock, whoever holds it.
func ForceRelease(name string) Call {
	return Call{forceRelease, []string{name}, []any{UnlockChannel(name)}}
}

// Inspect reads the state of a lock.
func Inspect(name string) Call {
	return Call{inspect, []string{name, TokenKey(name)}, nil}
}

// milliseconds rounds up: a key must not expire before its TTL.
func milliseconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}
