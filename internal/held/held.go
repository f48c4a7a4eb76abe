// Package held has the key under which a context carries the holds that it descends from.
package held

// Key is that key. Its value is package quorum's, and has the method Stopping of [quorumlock.Stopping].
type Key struct{}
