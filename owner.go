package quorumlock

import (
	"crypto/rand"
	"fmt"
)

// Owner says who holds a lock.
//
// On the nodes an owner is `<client uuid>:<n>`, a field of the lock's hash. The n is new for every
// attempt to acquire, so that a message of one tenure that arrives late can never touch the next;
// [Lease.Owner] reports it.
//
// In the process, [WithOwner] names whose hold a Lock call may enter. An Owner is a string and safe
// for concurrent use; the empty Owner is nobody.
type Owner string

// NewOwner returns an owner nobody else has, for [WithOwner].
func NewOwner() Owner {
	return Owner(NewID())
}

// NewID returns a random UUID (RFC 9562, version 4).
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
