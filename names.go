package quorumlock

import "github.com/quorumlock/quorumlock/internal/settings"

// ValidateName returns an error, which matches [ErrMisuse], if name is not valid for a lock. A name
// is invalid if it is empty, longer than 1,024 bytes with its prefix, or has the form of a key that this library or
// Redisson keeps beside a lock. Name includes the prefix of [WithPrefix]. The error has the reason
// and the fix.
//
// The methods of every lock check their names. A program that takes names from its users can call
// ValidateName earlier.
func ValidateName(name string) error { return settings.ValidateName(name) }
