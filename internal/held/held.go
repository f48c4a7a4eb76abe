// Package held has the key of the holds that a context descends from.
package held

// Key is that key. Its value is package quorum's, and has the method Stopping of [quorumlock.Stopping].
type Key struct{}
