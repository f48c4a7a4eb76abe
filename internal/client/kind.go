package client

import "github.com/quorumlock/quorumlock/internal/settings"

// Member is embedded in every kind of lock, so that [Of] finds its Lock.
type Member struct{ lock *Lock }

// NewMember returns the Member of a kind over l.
func NewMember(l *Lock) Member { return Member{l} }

func (m Member) member() *Lock { return m.lock }

// Of returns the Lock of a kind: nil for a nil or zero kind. ok is false for other values.
func Of(kind any) (*Lock, bool) {
	m, ok := kind.(interface{ member() *Lock })
	if !ok || settings.IsNil(kind) {
		return nil, ok
	}
	return m.member(), true
}

// ClientOf returns the client of a kind, for tests and simulations. It panics without one.
func ClientOf(kind any) *Client {
	l, _ := Of(kind)
	return l.Client()
}
