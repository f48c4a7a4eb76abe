package core

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
)

// A waiter looks again when the keys that refused it expire, including those that it hears of only after its attempt has failed.
// A release that leaves the lock to Redisson's clients for a moment calls nobody a second time.
func TestAWaiterLooksWhenTheKeysOfLateRefusalsExpire(t *testing.T) {
	const window = 20 * time.Millisecond
	for name, tree := range map[string]Tree{
		"3 of 4":      Majority(3, 4),
		"a MultiLock": Every([]Tree{Majority(2, 3), Majority(2, 3)}),
	} {
		t.Run(name, func(t *testing.T) {
			m := New(&Config{Tree: tree, TTL: 10 * time.Second, HandTTL: 9 * time.Second, NodeTimeout: time.Second, Renew: true}, func(int) time.Duration { return time.Millisecond }, 1)
			now := Time{Mono: time.Second, Wall: time.Second}
			for _, c := range callsOf(m.Step(now, Event{Kind: Start})) {
				m.Step(now, Event{Kind: Replied, Call: c, Reply: Reply{Free: true, TTL: window, Position: 1, Holder: quorumlock.Owner("b:0")}})
			}
			if due := m.Wake() - now.Mono; m.Phase() != Waiting || due < window || due > 2*window {
				t.Errorf("phase %d, the next attempt is due after %v", m.Phase(), due)
			}
		})
	}
}
