package scripts_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	resp "github.com/alicebob/miniredis/v2/server"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/transport"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/node"
)

// quarantine is for how long the guard keeps a server out in these tests.
const quarantine = 5 * time.Second

// host is a server that may restart.
type host struct {
	*testing.T
	*embedded.Server
	node *node.Node
}

// restarting runs a test with a server that has just started.
func restarting(t *testing.T, test func(h host)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		servers, nodes := locktest.Nodes(t, 1)
		time.Sleep(300 * time.Millisecond) // no clock has whole seconds
		h := host{t, servers[0], nodes[0]}
		h.Restart(true)
		test(h)
	})
}

// Restart is the server's, past the connection that is dead after it.
func (h host) Restart(keepData bool) {
	h.Server.Restart(keepData)
	_ = h.node.Client().Ping(h.Context()).Err()
}

func (h host) acquire(owner quorumlock.Owner) (wire.Answer, error) {
	return transport.Of(h.node).Send(h.Context(), wire.Acquire("x", owner, ttl, 1, 100).Guarded(quarantine))[0].Acquired()
}

// isOut checks that the guard keeps everybody out for a quarantine from now on: no moment less, and two
// seconds more at the most, since servers report their uptime in whole seconds. Then it is granted and released.
func (h host) isOut() {
	h.Helper()
	for from := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		a, err := h.acquire(alice)
		out := time.Since(from)
		if errors.Is(err, quorumlock.ErrQuarantined) && out <= quarantine+2*time.Second {
			continue
		}
		if err != nil || !a.Granted || out < quarantine {
			h.Fatalf("after %v: %+v, %v, want a quarantine of %v", out, a, err, quarantine)
		}
		transport.Of(h.node).Send(h.Context(), wire.Release("x", alice, 1))
		return
	}
}

// isIn checks that the server grants.
func (h host) isIn() {
	h.Helper()
	if a, err := h.acquire(alice); err != nil || !a.Granted {
		h.Fatalf("%+v, %v, want a grant", a, err)
	}
	transport.Of(h.node).Send(h.Context(), wire.Release("x", alice, 1))
}

func TestServerIsOutAfterEveryStartAndThenNoMore(t *testing.T) {
	for what, keepsData := range map[string]bool{"with its data": true, "without": false} {
		t.Run(what, func(t *testing.T) {
			restarting(t, func(h host) {
				h.isOut()
				time.Sleep(time.Hour)
				h.isIn()
				h.Restart(keepsData)
				h.isOut()
				h.Restart(keepsData)
				time.Sleep(quarantine / 2)
				h.Restart(keepsData)
				h.isOut()
			})
		})
	}
}

// What a script cache knows says nothing of the data: that the guard's script is new to a server is no
// reason to be out, and that somebody has brought it is none to be in.
func TestGuardDoesNotGoByTheScriptCache(t *testing.T) {
	restarting(t, func(h host) {
		transport.Of(h.node).Send(h.Context(), wire.Acquire("y", bob, ttl, 1, 100))
		if err := h.node.Client().ScriptLoad(h.Context(), wire.Acquire("x", alice, ttl, 1, 100).Guarded(quarantine).Script.Source).Err(); err != nil {
			h.Fatal(err)
		}
		h.isOut()
		h.FlushScripts()
		h.isIn()
	})
}

func TestQuarantinedServerHasNeitherKeyNorEntryForAnybody(t *testing.T) {
	entry := wire.Entry{Waiter: "alice:9", Ticket: 1, TTL: time.Second}
	for mode, c := range map[string]wire.Call{
		"acquire":         wire.Acquire("x", alice, ttl, 1, 100),
		"acquire in turn": wire.AcquireInTurn("x", alice, ttl, 100, entry),
		"restore":         wire.Restore("x", alice, ttl, 100),
		"enter again":     wire.Acquire("x", alice, ttl, 2, 100),
	} {
		t.Run(mode, func(t *testing.T) {
			restarting(t, func(h host) {
				a, err := transport.Of(h.node).Send(h.Context(), c.Guarded(quarantine))[0].Acquired()
				if !errors.Is(err, quorumlock.ErrQuarantined) {
					h.Errorf("%+v, %v, want ErrQuarantined", a, err)
				}
				if keys := h.Redis.Keys(); len(keys) > 0 {
					h.Errorf("it left %q", keys)
				}
			})
		})
	}
}

// What a server still has it did not lose: its owner goes on, and others hear that it is held.
func TestLockThatIsStillThereIsNotQuarantined(t *testing.T) {
	restarting(t, func(h host) {
		time.Sleep(time.Hour)
		first, err := h.acquire(alice)
		if err != nil || !first.Granted {
			h.Fatalf("%+v, %v", first, err)
		}
		h.Restart(true)
		if a, err := h.acquire(bob); err != nil || a.Granted {
			h.Errorf("somebody else: %+v, %v, want a refusal", a, err)
		}
		if a, err := h.acquire(alice); err != nil || !a.Again {
			h.Errorf("the owner: %+v, %v, want what it has", a, err)
		}
		for what, c := range map[string]wire.Call{
			"renew": wire.Renew("x", alice, ttl), "raise": wire.Raise("x", alice, ttl, first.Token, first.Token+100),
		} {
			if ok, err := transport.Of(h.node).Send(h.Context(), c)[0].Done(); err != nil || !ok {
				h.Errorf("%s: %v, %v", what, ok, err)
			}
		}
	})
}

// A replica may lack its master's last writes: what counts is when it took over, not when it started.
func TestPromotedServerIsOutFromTheFirstCallOn(t *testing.T) {
	restarting(t, func(h host) {
		time.Sleep(time.Hour)
		h.isIn()
		for range 3 { // the last of them without anybody asking in between
			h.Promote()
			h.isOut()
			time.Sleep(time.Hour)
			h.isIn()
			h.FlushScripts()
			h.isIn()
			h.Promote()
		}
		h.isOut()
	})
}

func TestGuardThatCannotSeeGrantsNothingAndNamesTheFix(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(h host)
		want  string
	}{
		"denied": {func(h host) { h.Deny("info") }, "+info"},
		"no uptime": {func(h host) {
			h.Redis.Server().SetPreHook(func(c *resp.Peer, cmd string, _ ...string) bool {
				if cmd == "INFO" {
					c.WriteBulk("# Server\r\nuptime:1\r\n")
				}
				return cmd == "INFO"
			})
		}, "no uptime"},
	} {
		t.Run(name, func(t *testing.T) {
			restarting(t, func(h host) {
				time.Sleep(time.Hour)
				c.spoil(h)
				if a, err := h.acquire(alice); err == nil || !strings.Contains(err.Error(), c.want) {
					h.Errorf("%+v, %v, want an error that says %q", a, err, c.want)
				}
				if keys := h.Redis.Keys(); len(keys) > 0 {
					h.Errorf("it left %q", keys)
				}
			})
		})
	}
}

func TestCallWithoutAGuardIsWhatItWas(t *testing.T) {
	c := wire.Acquire("x", alice, ttl, 1, 100)
	if got := c.Guarded(0); got.Script != c.Script || len(got.Args()) != len(c.Args()) {
		t.Errorf("got %+v, want %+v", got, c)
	}
	if c.Guarded(quarantine).Script.SHA == c.Script.SHA {
		t.Error("the guard is not in the script")
	}
}

// A lock that is shared says nothing of what was lost since: those who share it may have left, and somebody may have got it.
func TestAServerThatHasStartedLetsNobodyShareWhatItStillHas(t *testing.T) {
	restarting(t, func(h host) {
		share := wire.Acquire("x", alice, time.Hour, 1, 100).Shared()
		if a, err := transport.Of(h.node).Send(h.Context(), share)[0].Acquired(); err != nil || !a.Granted {
			h.Fatalf("%+v, %v", a, err)
		}
		other := wire.Acquire("x", "bob:1", ttl, 1, 100).Shared().Guarded(quarantine)
		if a, err := transport.Of(h.node).Send(h.Context(), other)[0].Acquired(); !errors.Is(err, quorumlock.ErrQuarantined) {
			h.Errorf("%+v, %v, want ErrQuarantined", a, err)
		}
	})
}
