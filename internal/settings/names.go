package settings

import (
	"crypto/rand"
	"fmt"
	"strings"
	"unicode"

	"github.com/quorumlock/quorumlock/internal/errs"
)

// reserved are the prefixes of the keys and channels that go with the key of a lock, with their
// uses. (Redisson: RedissonLock, RedissonBaseLock, RedissonFencedLock, RedissonFairLock,
// RedissonReadLock.)
var reserved = []struct{ prefix, use string }{
	{"quorumlock_", "this library keeps who waits for a lock"},
	{"redisson_lock_token:", "the fencing tokens of locks are kept"},
	{"redisson_lock__channel:", "releases of locks are published"},
	{"redisson_lock_queue:", "Redisson keeps who waits for a fair lock"},
	{"redisson_lock_timeout:", "Redisson keeps until when somebody waits for a fair lock"},
	{"redisson_unlock_latch:", "Redisson keeps the outcome of a release"},
	{"redisson_rwlock:", "Redisson publishes releases of read-write locks"},
}

// The gates of LockN and TryLockN are locks. The name of a gate is the semaphore's and one of these.
const (
	LockGate = ":quorumlock_lockn"
	TryGate  = ":quorumlock_trylockn"
)

// readTimeout is part of the keys in which Redisson keeps the readers of a read-write lock:
// `{name}:<owner>:rwlock_timeout:<n>`.
const readTimeout = ":rwlock_timeout:"

// MaxName is the longest name of a lock, in bytes, its prefix included.
const MaxName = 1024

// MaxPermits is the maximum number of permits of a semaphore.
const MaxPermits = 1000

// ValidateName is quorumlock.ValidateName.
func ValidateName(name string) error {
	if name == "" {
		return errs.Misuse("quorumlock: the name of the lock is empty: use a name")
	}
	if err := CheckLength(name); err != nil {
		return err
	}
	for _, r := range reserved {
		if strings.HasPrefix(name, r.prefix) {
			return errs.Misusef("quorumlock: the name of the lock %.80q begins with %q, where %s: use a name with another beginning", name, r.prefix, r.use)
		}
	}
	for _, gate := range []string{LockGate, TryGate} {
		if strings.HasSuffix(name, gate) {
			return errs.Misusef("quorumlock: the name of the lock %.80q ends with %q, where LockN keeps a lock beside a semaphore: use a name with another end", name, gate)
		}
	}
	if i := strings.LastIndex(name, readTimeout); i >= 0 && IsDigits(name[i+len(readTimeout):]) {
		return errs.Misusef("quorumlock: the name of the lock %.80q ends with %q, where Redisson keeps a reader of a read-write lock: use a name with another end", name, name[i:])
	}
	return nil
}

// CheckLength returns an error for a name that is too long.
func CheckLength(name string) error {
	if len(name) > MaxName {
		return errs.Misusef("quorumlock: the name of the lock %.80q... has %d bytes with its prefix: use at most %d", name, len(name), MaxName)
	}
	return nil
}

// CheckPrefix returns an error for a prefix that no name makes valid.
func CheckPrefix(p string) error {
	if len(p) >= MaxName {
		return errs.Misusef("quorumlock: WithPrefix(%.80q...) has %d bytes, and a name at most %d with its prefix: use a shorter prefix", p, len(p), MaxName)
	}
	if strings.ContainsFunc(p, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return errs.Misusef("quorumlock: WithPrefix(%.80q) contains a space or a control character: use a prefix without, such as \"billing:\"", p)
	}
	if _, tag, ok := strings.Cut(p, "{"); ok && strings.IndexByte(tag, '}') < 1 {
		return errs.Misusef("quorumlock: WithPrefix(%.80q) has a { that begins no hash tag: use a form such as \"{billing}:\", or a prefix without braces", p)
	}
	for _, r := range reserved {
		if strings.HasPrefix(p, r.prefix) {
			return errs.Misusef("quorumlock: WithPrefix(%.80q) begins with %q, where %s: use a prefix with another beginning", p, r.prefix, r.use)
		}
	}
	return nil
}

// MaxLabel is the longest label, in bytes.
const MaxLabel = 64

// IsLabel tells whether s may be a label.
func IsLabel(s string) bool {
	for _, c := range []byte(s) {
		if !InLabel(c) {
			return false
		}
	}
	return s != "" && len(s) <= MaxLabel
}

// InLabel tells whether c may be part of a label.
func InLabel(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("._-", c) >= 0
}

// IsDigits tells whether s is one or more digits.
func IsDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}

// NewID returns a random UUID (RFC 9562, version 4).
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
