package quorumlock

import "github.com/quorumlock/quorumlock/internal/settings"

// MaxName is the longest name of a lock or a latch, in bytes, the prefix of [WithPrefix] included.
const MaxName = settings.MaxName

// CheckName returns an error if no lock can have that name: it is empty, longer than [MaxName], or it is, or looks like, a key that this
// library or Redisson keeps beside a lock. It is given the whole name, with the prefix of [WithPrefix]. The calls of
// every kind of lock check their names; a program that takes names from its users can do so earlier. The error says
// why the name is refused and what to use.
func CheckName(name string) error { return settings.CheckName(name) }
