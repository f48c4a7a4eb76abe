package quorum

import "github.com/quorumlock/quorumlock/internal/settings"

// Member is what a kind of lock embeds, so that [Of] finds its lock of the engine.
type Member struct{ lock *Lock }

// NewMember returns what the kind of l embeds.
func NewMember(l *Lock) Member { return Member{l} }

func (m Member) member() *Lock { return m.lock }

// Of returns the engine's lock of a kind, which is nil of a nil or zero kind, and false of anything else.
func Of(kind any) (*Lock, bool) {
	m, ok := kind.(interface{ member() *Lock })
	if !ok || settings.IsNil(kind) {
		return nil, ok
	}
	return m.member(), true
}

// ClientOf returns the engine's client of a kind, for tests and simulations. It panics if there is none.
func ClientOf(kind any) *Client {
	l, _ := Of(kind)
	return l.Client()
}
