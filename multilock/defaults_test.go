package multilock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/multilock"
)

func TestAMultiLockHasTheDefaultsOfItsClientUntilAnOptionOverridesThem(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		lines, logger := testkit.Logger()
		acquired := 0
		seen := testkit.Observer(func(e quorumlock.Event) {
			if e.Kind == quorumlock.EventAcquired && strings.Contains(e.Lock, " + ") {
				acquired++
			}
		})
		c, servers := testkit.Client(t, 3, quorumlock.WithTTL(3*time.Second), quorumlock.WithWait(time.Second), quorumlock.WithoutRenewal(),
			quorumlock.WithLabel("billing"), quorumlock.WithPrefix("{app}:"), quorumlock.WithQuorum(3),
			logger, quorumlock.WithObserver(seen))
		a, b := c.Mutex("a"), c.Mutex("b")
		lease := testkit.Lock(t, testkit.Multi(t, a, b))
		if left := time.Until(lease.ValidUntil()); left > 3*time.Second {
			t.Errorf("valid for %v, want less than the client's TTL of 3s", left)
		}
		testkit.Equal(t, lease.Owner().Label(), "billing", "the label")
		testkit.Equal(t, testkit.Holds(servers, "{app}:a", lease.Owner()), 3, "nodes that have the key with the client's prefix")
		began := time.Now()
		testkit.Is(t, testkit.Err(testkit.Multi(t, b, a).Lock(t.Context())), context.DeadlineExceeded, "Lock")
		testkit.Took(t, began, time.Second, time.Second, "Lock")
		testkit.Lost(t, lease, 3*time.Second) // it is not renewed
		testkit.Equal(t, acquired, 1, "grants that the client's Observer learned of")

		m, err := multilock.New([]quorumlock.Locker{a, c.Mutex("b", quorumlock.WithTTL(5*time.Second))}, quorumlock.WithTTL(7*time.Second))
		testkit.Must(t, err, "New")
		overridden := testkit.Lock(t, m)
		if left := time.Until(overridden.ValidUntil()); left < 6*time.Second || left > 7*time.Second {
			t.Errorf("valid for %v, want almost 7s", left)
		}
		testkit.Unlock(t, overridden)
		_ = c.Close() // returns when all is logged
		if len(lines.Lines("a + b")) == 0 {
			t.Error("the client's logger has nothing of the loss")
		}
	})
}

// New refuses conflicting defaults, because the order of the members would decide between them.
func TestDifferentDefaultsOfClientsAreRefusedUntilOneIsGiven(t *testing.T) {
	const minute = time.Minute
	for name, tt := range map[string]struct {
		one, other []quorumlock.Option
		want       string
		given      quorumlock.Option
	}{
		"TTL": {[]quorumlock.Option{quorumlock.WithTTL(3 * time.Second)}, []quorumlock.Option{quorumlock.WithTTL(5 * time.Second)},
			"WithTTL is 3s and 5s", quorumlock.WithTTL(4 * time.Second)},
		"wait":         {nil, []quorumlock.Option{quorumlock.WithWait(minute)}, "WithWait is not set and 1m0s", quorumlock.WithWait(minute)},
		"no wait":      {nil, []quorumlock.Option{quorumlock.WithWait(0)}, "WithWait is not set and 0s", quorumlock.WithWait(0)},
		"node timeout": {[]quorumlock.Option{quorumlock.WithNodeTimeout(time.Second)}, nil, "WithNodeTimeout is 1s and 500ms", quorumlock.WithNodeTimeout(time.Second)},
		"renewal":      {[]quorumlock.Option{quorumlock.WithoutRenewal()}, nil, "WithoutRenewal is true and false", quorumlock.WithoutRenewal()},
		"guard":        {nil, []quorumlock.Option{quorumlock.WithRestartGuard(minute)}, "WithRestartGuard is not set and 1m0s", quorumlock.WithRestartGuard(minute)},
		"max hold":     {nil, []quorumlock.Option{quorumlock.WithMaxHold(minute)}, "WithMaxHold is not set and 1m0s", quorumlock.WithMaxHold(minute)},
	} {
		t.Run(name, func(t *testing.T) {
			c, servers := testkit.Client(t, 3, tt.one...)
			d, _ := testkit.Another(t, servers, tt.other...)
			nested := testkit.Multi(t, c.Mutex("x"))
			for _, members := range [][]quorumlock.Locker{{c.Mutex("a"), d.Mutex("b")}, {nested, c.Mutex("a"), d.Mutex("b")}} {
				if _, err := multilock.New(members); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "give the option to multilock.New") {
					t.Errorf("New: %v, want that %s", err, tt.want)
				}
				m, err := multilock.New(members, tt.given)
				testkit.Must(t, err, "New with the option")
				if _, err := multilock.New([]quorumlock.Locker{m, c.Mutex("y")}); err == nil {
					t.Error("New took a MultiLock of clients that differ as a member")
				}
			}
		})
	}
}

// New refuses a guard of one member alone, because the MultiLock would drop it.
func TestTheGuardOfASingleMemberIsNotLost(t *testing.T) {
	c, _ := testkit.Client(t, 3)
	guard := quorumlock.WithRestartGuard(time.Minute)
	members := []quorumlock.Locker{c.Mutex("a"), c.Mutex("b", guard)}
	if _, err := multilock.New(members); err == nil || !strings.Contains(err.Error(), "member 2 has WithRestartGuard(1m0s): give it to multilock.New") {
		t.Errorf("New: %v", err)
	}
	testkit.OK(t, testkit.Err(multilock.New(members, guard)), "New")
}
