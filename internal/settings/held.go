package settings

// HeldKey is the key of the holds that a context descends from. The value is package client's, and
// has the method Stopping of [quorumlock.Stopping].
type HeldKey struct{}
