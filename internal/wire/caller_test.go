package wire

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/core"
)

type oneName struct{ n int }

func (c oneName) Cells() int        { return c.n }
func (c oneName) NameOf(int) string { return "x" }
func (c oneName) Shares(int) bool   { return false }

// A reader passes a waiting TryLock. Once they contend for the same nodes, both yield to the lowest
// ticket: otherwise they would split the votes until both give up.
func TestReadersPassATryLockUntilItContends(t *testing.T) {
	terms := &Terms{TTL: 10 * time.Second}
	for _, tt := range []struct {
		secret           string
		contends, passed bool
	}{
		{"", false, true},
		{"", true, false},
		{"s3cret", false, false},
	} {
		caller := &Caller{Waiter: "c:1", Ticket: 7, Secret: tt.secret}
		for _, do := range []core.Do{core.Acquire, core.Yield} {
			e := Entry{Waiter: caller.Waiter, Ticket: caller.Ticket, TTL: time.Second, Callers: 1}
			caller.Script(terms, oneName{3}, &core.Call{Do: do, Attempt: 1, Contends: tt.contends}, "c:1/0", &e, 0)
			if e.Passable != tt.passed {
				t.Errorf("call %v, contends %v, secret %q: readers pass it: %v, want %v", do, tt.contends, tt.secret, e.Passable, tt.passed)
			}
		}
	}
}
