package scriptmodel_test

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/proof/scriptmodel"
)

const (
	alice quorumlock.Owner = "alice:1"
	bob   quorumlock.Owner = "bob:1"
	ttl                    = 10 * time.Second
)

// Redis keeps a key until the millisecond of its deadline is over; miniredis does not.
func TestAKeyEndsWithTheMillisecondOfItsDeadline(t *testing.T) {
	for _, tt := range []struct {
		eager   bool
		after   time.Duration
		granted bool
	}{
		{false, ttl - time.Microsecond, false},
		{false, ttl, false},
		{false, ttl + 999*time.Microsecond, false},
		{false, ttl + time.Millisecond, true},
		{true, ttl - time.Microsecond, false},
		{true, ttl, true},
	} {
		n := scriptmodel.New("1")
		n.Eager = tt.eager
		now := scriptmodel.Time(epoch / 1000 * 1000)
		n.Run(now, wire.Acquire("x", alice, ttl, 1, 1))
		reply, _ := n.Run(now.Add(tt.after), wire.Acquire("x", bob, ttl, 1, 1))
		if a, err := reply.Acquired(); err != nil || a.Granted != tt.granted {
			t.Errorf("eager %v, after %v: %+v, %v", tt.eager, tt.after, a, err)
		}
	}
}

func TestRestartAndPromotionKeepTheKeys(t *testing.T) {
	n := scriptmodel.New("1")
	guarded := wire.Acquire("y", alice, ttl, 1, 1).Guarded(time.Minute)
	var sight wire.Sight
	granted := func(at scriptmodel.Time) bool {
		c, now := guarded, time.UnixMicro(int64(at))
		sight.Vouch(&c, now)
		reply, _ := n.Run(at, c)
		sight.Saw(&reply, now)
		a, _ := reply.Acquired()
		n.Forget(at, "y")
		return a.Granted
	}
	now := epoch.Add(time.Hour)
	n.Run(now, wire.Acquire("x", alice, ttl, 1, 1))
	for range 2 {
		if granted(now) || granted(now.Add(59*time.Second)) || !granted(now.Add(time.Minute)) || !granted(now) {
			t.Error("a start has no quarantine of a minute")
		}
		n.Restart("2", "2")
	}
	now = now.Add(time.Hour)
	n.Run(now, wire.Acquire("x", alice, ttl, 1, 1))
	n.Promote("3")
	if granted(now) || granted(now.Add(59*time.Second)) || !granted(now.Add(time.Minute)) {
		t.Error("a promotion has no quarantine of a minute")
	}
	if _, ok := n.Peek(now, "x"); !ok {
		t.Error("the lock is gone")
	}
	n.Flush()
	if keys := n.Keys(now); len(keys) > 0 {
		t.Errorf("%q are left of a flush", keys)
	}
}

func TestAKeyThatEndsNowIsNotMade(t *testing.T) {
	n := scriptmodel.New("1")
	n.Put(epoch, "x", scriptmodel.Value{Text: "a", Expires: int64(epoch / 1000)})
	if _, ok := n.Peek(epoch, "x"); ok {
		t.Error("it is there")
	}
}

func TestAnUnknownScriptIsRefused(t *testing.T) {
	reply, _ := scriptmodel.New("1").Run(epoch, wire.NewCall(new(wire.Script), []string{"x"}))
	if reply.Err == nil {
		t.Error("no error")
	}
}

func TestACallWithoutArgumentsIsNoErrorOfTheNodes(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	c := wire.Release("x", alice, 1)
	scriptmodel.New("1").Run(epoch, wire.NewCall(c.Script, c.Keys()))
}
