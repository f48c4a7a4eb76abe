package core

import (
	"testing"
	"time"
)

// The reason of a failed attempt follows from the answers of all cells. "h": refused for another
// owner; "g": granted; "x": failed; "k": the key is no lock; "-": no answer.
func TestTheReasonIsWhatAllCellsAllow(t *testing.T) {
	three, five, four := Majority(2, 3), Majority(3, 5), Majority(3, 4)
	both := Every([]Tree{three, three})
	for _, tt := range []struct {
		tree  Tree
		cells string
		want  Reason
	}{
		{three, "hh-", Held},
		{three, "xhh", Held},
		{three, "xgh", Held},
		{three, "xh-", HeldOrNone},
		{three, "gh-", Held},
		{three, "--h", HeldOrNone},
		{three, "xxh", NoQuorum},
		{three, "xx-", NoQuorum},
		{three, "xxg", NoQuorum},
		{three, "kkh", NotALock},
		{three, "kxh", NoQuorum},
		{three, "khh", Held},
		{five, "xxhgg", Held},
		{five, "xxh--", HeldOrNone},
		{five, "hhh--", Held},
		{five, "xxxh-", NoQuorum},
		{five, "hh---", HeldOrNone},
		{four, "hhxx", NoQuorum},
		{four, "hhx-", HeldOrNone},
		{four, "hhhx", Held},
		{both, "---hh-", Held},
		{both, "xx-hh-", HeldAndNoQuorum},
		{both, "hhhx-x", HeldAndNoQuorum},
		{both, "x--hh-", Held},
		{both, "xgghhx", Held},
		{both, "xx-h--", NoQuorum},
		{both, "h--xh-", HeldOrNone},
		{both, "ggghxg", Held},
	} {
		t.Run(tt.cells, func(t *testing.T) {
			m := New(&Config{Tree: tt.tree, TTL: 10 * time.Second, NodeTimeout: time.Second, Renew: true}, func(int) time.Duration { return time.Millisecond }, 1)
			m.Step(Time{}, Event{Kind: Start})
			for i, said := range tt.cells {
				c, now := &m.Cells[i], Time{Mono: time.Millisecond}
				switch said {
				case 'h':
					m.note(now, c, heldByOther)
				case 'g':
					m.note(now, c, Reply{OK: true, Token: 7})
				case 'x':
					m.note(now, c, Reply{Err: errNoAnswer, Unsent: i%2 == 0})
				case 'k':
					m.note(now, c, Reply{Err: errNoAnswer, NotALock: true})
				}
			}
			if got := m.refusal(); got != tt.want {
				t.Errorf("reason %d, want %d", got, tt.want)
			}
		})
	}
}

// The last attempt of a TryLock ended without answers. The reason is that of the attempt before,
// unless a cell has failed.
func TestATryLockThatIsCutShortKeepsItsReason(t *testing.T) {
	for _, tt := range []struct {
		before Reason
		failed bool
		want   Reason
	}{
		{Held, false, Held},
		{Held, true, HeldOrNone},
		{NoQuorum, false, HeldOrNone},
	} {
		m := New(&Config{Tree: Majority(2, 3), TTL: 10 * time.Second, NodeTimeout: time.Second, Renew: true, Tries: true},
			func(int) time.Duration { return time.Millisecond }, 1)
		m.Step(Time{}, Event{Kind: Start})
		m.reason, m.Cells[0].failed = tt.before, tt.failed
		m.abandonAttempt(Time{Mono: 2 * time.Second}, HeldOrNone)
		if m.fx.Outcome != Failed || m.fx.Reason != tt.want {
			t.Errorf("after reason %d, a failure %v: outcome %d and reason %d, want %d and %d", tt.before, tt.failed, m.fx.Outcome, m.fx.Reason, Failed, tt.want)
		}
	}
}
