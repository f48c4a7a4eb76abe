package quorumlock

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// reserved are the prefixes of the keys and channels that go with the key of a lock, and what each is for. (Redisson:
// RedissonLock, RedissonBaseLock, RedissonFencedLock, RedissonFairLock, RedissonReadLock.)
var reserved = []struct{ prefix, use string }{
	{"quorumlock_", "this library keeps who waits for a lock"},
	{"redisson_lock_token:", "the fencing tokens of locks are kept"},
	{"redisson_lock__channel:", "releases of locks are published"},
	{"redisson_lock_queue:", "Redisson keeps who waits for a fair lock"},
	{"redisson_lock_timeout:", "Redisson keeps until when somebody waits for a fair lock"},
	{"redisson_unlock_latch:", "Redisson keeps the outcome of a release"},
	{"redisson_rwlock:", "Redisson publishes releases of read-write locks"},
}

// readTimeout is part of the keys in which Redisson keeps the readers of a read-write lock:
// `{name}:<owner>:rwlock_timeout:<n>`.
const readTimeout = ":rwlock_timeout:"

// CheckName returns an error if no lock can have that name: it is empty, or it is, or looks like, a key that this
// library or Redisson keeps beside a lock. It is given the whole name, with the prefix of [WithPrefix]. The calls of
// every kind of lock check their names; a program that takes names from its users can do so earlier. The error says
// why the name is refused and what to use.
func CheckName(name string) error {
	if name == "" {
		return errors.New("quorumlock: the name of the lock is empty: use a name")
	}
	for _, r := range reserved {
		if strings.HasPrefix(name, r.prefix) {
			return fmt.Errorf("quorumlock: the name of the lock %.80q begins with %q, where %s: use a name with another beginning", name, r.prefix, r.use)
		}
	}
	if i := strings.LastIndex(name, readTimeout); i >= 0 && isDigits(name[i+len(readTimeout):]) {
		return fmt.Errorf("quorumlock: the name of the lock %.80q ends with %q, where Redisson keeps a reader of a read-write lock: use a name with another end", name, name[i:])
	}
	return nil
}

// checkPrefix returns what is wrong with a prefix for names, whatever name follows.
func checkPrefix(p string) error {
	if strings.ContainsFunc(p, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		return fmt.Errorf("quorumlock: WithPrefix(%.80q) contains a space or a control character: use a prefix without, such as \"billing:\"", p)
	}
	if _, tag, ok := strings.Cut(p, "{"); ok && strings.IndexByte(tag, '}') < 1 {
		return fmt.Errorf("quorumlock: WithPrefix(%.80q) has a { that begins no hash tag: use a form such as \"{billing}:\", or a prefix without braces", p)
	}
	for _, r := range reserved {
		if strings.HasPrefix(p, r.prefix) {
			return fmt.Errorf("quorumlock: WithPrefix(%.80q) begins with %q, where %s: use a prefix with another beginning", p, r.prefix, r.use)
		}
	}
	return nil
}
