package quorum

// Member is how packages multilock and election find the engine's lock of a kind. A kind embeds it by an alias of its own
// (`type member = quorum.Member`), so that its documentation does not show users a method that is not for them.
type Member struct{ lock *Lock }

// NewMember returns what the kind of l embeds.
func NewMember(l *Lock) Member { return Member{l} }

// Member returns the engine's lock; nil of a zero kind.
func (m Member) Member() *Lock { return m.lock }
