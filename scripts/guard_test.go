package scripts_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	resp "github.com/alicebob/miniredis/v2/server"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
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
		servers, nodes := testkit.Nodes(t, 1)
		time.Sleep(300 * time.Millisecond) // no clock has whole seconds
		h := host{t, servers[0], nodes[0]}
		h.Restart(true)
		test(h)
	})
}

// another returns another client of the server.
func (h host) another() *node.Node {
	h.Helper()
	n, err := h.Server.Node()
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() { _ = n.Close() })
	return n
}

// of returns the host as another client sees it.
func (h host) of(n *node.Node) host {
	h.node = n
	return h
}

// Restart is the server's, past the connection that is dead after it.
func (h host) Restart(keepData bool) {
	h.Server.Restart(keepData)
	_ = h.node.Client().Ping(h.Context()).Err()
}

// acquired sends an acquire behind the guard.
func (h host) acquired(c wire.Call) (wire.Answer, error) {
	return testkit.Send(h.Context(), h.node, c.Guarded(quarantine))[0].Acquired()
}

func (h host) acquire() (wire.Answer, error) {
	return h.acquired(wire.Acquire("x", alice, ttl, 1, 100))
}

func (h host) grants(c wire.Call) {
	h.Helper()
	if a, err := h.acquired(c); err != nil || !a.Granted {
		h.Fatalf("%+v, %v, want a grant", a, err)
	}
}

// quarantines checks that the guard refuses an acquire.
func (h host) quarantines(c wire.Call) {
	h.Helper()
	if a, err := h.acquired(c); !errors.Is(err, quorumlock.ErrQuarantined) {
		h.Errorf("%+v, %v, want ErrQuarantined", a, err)
	}
}

func (h host) hasNoKeys() {
	h.Helper()
	if keys := h.Redis.Keys(); len(keys) > 0 {
		h.Errorf("the server has %q, want no keys", keys)
	}
}

// isOut checks that the guard keeps everybody out for a quarantine from now on, and no longer. Then
// it is granted and released.
func (h host) isOut() {
	h.Helper()
	h.isOutFor(quarantine)
}

func (h host) isOutFor(quarantine time.Duration) {
	h.Helper()
	const look = 50 * time.Millisecond
	for from := time.Now(); ; time.Sleep(look) {
		a, err := h.acquire()
		out := time.Since(from)
		if errors.Is(err, quorumlock.ErrQuarantined) && out < quarantine+look {
			continue
		}
		if err != nil || !a.Granted || out < quarantine {
			h.Fatalf("after %v: %+v, %v, want a quarantine of %v", out, a, err, quarantine)
		}
		testkit.Send(h.Context(), h.node, wire.Release("x", alice, 1))
		return
	}
}

// isIn checks that the server grants.
func (h host) isIn() {
	h.Helper()
	h.grants(wire.Acquire("x", alice, ttl, 1, 100))
	testkit.Send(h.Context(), h.node, wire.Release("x", alice, 1))
}

func TestServerIsOutAfterEveryStartAndThenNoMore(t *testing.T) {
	t.Parallel()
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

// A machine may boot with a wrong clock, which a time server then corrects: INFO's uptime moves with
// it.
func TestAStepOfTheServersClockMovesNoQuarantine(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct{ booted, corrected time.Duration }{
		"it boots an hour slow":   {-time.Hour, 0},
		"it boots an hour fast":   {time.Hour, 0},
		"it is set an hour ahead": {0, time.Hour},
		"it is set an hour back":  {0, -time.Hour},
	} {
		for when, after := range map[string]time.Duration{"before the first call": -1, "at once": 0, "in the quarantine": quarantine / 2, "after it": 2 * quarantine} {
			t.Run(what+", "+when, func(t *testing.T) {
				restarting(t, func(h host) {
					h.TellTime(c.booted)
					h.Restart(false)
					correct := func() { h.TellTime(c.corrected) }
					if after < 0 {
						correct()
					} else {
						time.AfterFunc(after, correct)
					}
					h.isOut()
					time.Sleep(2 * quarantine)
					h.isIn()
				})
			})
		}
	}
}

// Later clients need not wait: the server keeps what an earlier client knows of its age. Otherwise
// each deployment would begin with a quarantine, and programs that live for a shorter time would
// never be granted.
func TestClientsShareWhatTheyKnowOfAServer(t *testing.T) {
	t.Parallel()
	restarting(t, func(h host) {
		h.quarantines(wire.Acquire("x", alice, ttl, 1, 100))
		for range 2 { // clients that live for less than two seconds, and tell of one
			brief := h.of(h.another())
			for range 19 {
				brief.quarantines(wire.Acquire("x", alice, ttl, 1, 100))
				time.Sleep(100 * time.Millisecond)
			}
		}
		h.of(h.another()).isOutFor(quarantine - 2*time.Second)
		h.of(h.another()).isIn()

		time.Sleep(time.Hour)
		h.isIn() // this client has known the server for an hour
		longer := wire.Acquire("x", alice, ttl, 1, 100).Guarded(30 * time.Minute)
		if a, err := testkit.Send(h.Context(), h.another(), longer)[0].Acquired(); err != nil || !a.Granted {
			h.Errorf("a client that expects longer TTLs: %+v, %v", a, err)
		}
	})
}

// A flush loses what the server keeps, but not what clients know.
func TestAFlushBeginsNoQuarantineForClientsThatKnowTheServer(t *testing.T) {
	t.Parallel()
	restarting(t, func(h host) {
		h.isOut()
		h.Redis.FlushAll()
		h.isIn()
		h.Redis.FlushAll()
		h.of(h.another()).isOut()
	})
}

// A master changes its replication ID, too, when it has had no replica for an hour.
func TestAnotherReplicationIDAloneIsNoPromotion(t *testing.T) {
	t.Parallel()
	restarting(t, func(h host) {
		h.isOut()
		h.Retire()
		h.isIn()
		h.Promote()
		h.isOut()
		h.Retire()
		h.of(h.another()).isIn()
	})
}

// A master that becomes one again after a failover lacks the last writes of the master in between,
// and forgets its former replication ID. Its data name that other master.
func TestAFormerMasterIsOutAfterItHasForgottenTheFailover(t *testing.T) {
	t.Parallel()
	restarting(t, func(h host) {
		h.isOut()
		testkit.Must(t, h.Redis.Set("quorumlock_age", "another:id 1000000000"), "Set")
		h.Promote()
		h.Retire()
		h.isOut()
	})
}

// What a script cache knows says nothing of the data: that the guard's script is new to a server is
// no reason to be out, and that somebody has brought it is none to be in.
func TestGuardDoesNotGoByTheScriptCache(t *testing.T) {
	t.Parallel()
	restarting(t, func(h host) {
		testkit.Send(h.Context(), h.node, wire.Acquire("y", bob, ttl, 1, 100))
		if err := h.node.Client().ScriptLoad(h.Context(), wire.Acquire("x", alice, ttl, 1, 100).Guarded(quarantine).Script.Source).Err(); err != nil {
			h.Fatal(err)
		}
		h.isOut()
		h.FlushScripts()
		h.isIn()
	})
}

func TestQuarantinedServerHasNeitherKeyNorEntryForAnybody(t *testing.T) {
	t.Parallel()
	for mode, c := range map[string]wire.Call{
		"acquire":         wire.Acquire("x", alice, ttl, 1, 100),
		"acquire in turn": wire.AcquireInTurn("x", alice, ttl, 100, wire.Entry{Waiter: "alice:9", Ticket: 1, TTL: time.Second}),
		"restore":         wire.Restore("x", alice, ttl, 100),
		"enter again":     wire.Acquire("x", alice, ttl, 2, 100),
		"a slot":          wire.Restore("x", alice, ttl, 100).At(7).OfSemaphore(2, 0),
	} {
		t.Run(mode, func(t *testing.T) {
			restarting(t, func(h host) {
				h.quarantines(c)
				h.hasNoKeys()
			})
		})
	}
}

// A replica may lack its master's last writes: what counts is when it took over, not when it
// started.
func TestPromotedServerIsOutFromTheFirstCallOn(t *testing.T) {
	t.Parallel()
	restarting(t, func(h host) {
		h.isOut()
		for range 3 { // the last of them without anybody asking in between
			h.Promote()
			time.Sleep(time.Hour) // nobody asks
			h.isOut()
			h.FlushScripts()
			h.isIn()
			h.Promote()
		}
		h.isOut()
	})
}

func TestGuardThatCannotSeeGrantsNothingAndNamesTheFix(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(h host)
		want  string
	}{
		"denied": {func(h host) { h.Deny("info") }, "+info"},
		"no run_id": {func(h host) {
			h.Redis.Server().SetPreHook(func(c *resp.Peer, cmd string, _ ...string) bool {
				if cmd == "INFO" {
					c.WriteBulk("# Server\r\nrun:1\r\n")
				}
				return cmd == "INFO"
			})
		}, "no run_id"},
		"a key of another kind": {func(h host) {
			if _, err := h.Redis.Push("quorumlock_age", "1"); err != nil {
				h.Fatal(err)
			}
		}, "cannot use the key quorumlock_age: WRONGTYPE"},
		"a replica": {func(h host) { h.Configure("role", "slave") }, "READONLY"},
	} {
		t.Run(name, func(t *testing.T) {
			restarting(t, func(h host) {
				c.spoil(h)
				if a, err := h.acquire(); err == nil || !strings.Contains(err.Error(), c.want) {
					h.Errorf("%+v, %v, want an error that says %q", a, err, c.want)
				}
				h.Redis.Del("quorumlock_age")
				h.hasNoKeys()
			})
		})
	}
}

func TestCallWithoutAGuardIsWhatItWas(t *testing.T) {
	c := wire.Acquire("x", alice, ttl, 1, 100)
	if got := c.Guarded(0); got.Script != c.Script || len(got.Args()) != len(c.Args()) {
		t.Errorf("got %+v, want %+v", got, c)
	}
	if c.Guarded(quarantine).Script.SHA() == c.Script.SHA() {
		t.Error("the guard is not in the script")
	}
}

// A server that comes back with old data shows a reader, or a holder of a slot, that has gone
// since. The writer after it is lost. Nobody may share that lock now, and nobody may have it when
// the old share is over: only a fresh key was not lost.
func TestAnOldShareOpensNoQuarantinedServer(t *testing.T) {
	for what, ask := range map[string]func(quorumlock.Owner) wire.Call{
		"a share": func(o quorumlock.Owner) wire.Call { return wire.Acquire("x", o, ttl, 1, 100).Shared() },
		"a slot":  func(o quorumlock.Owner) wire.Call { return slotted(o, 1, 2, 0) },
	} {
		t.Run(what, func(t *testing.T) {
			restarting(t, func(h host) {
				h.isOut()
				h.Redis.FlushAll() // the counter of a mutex
				h.grants(ask(alice))
				h.Restart(true) // from a snapshot: alice has left since, and somebody else holds at a quorum with this server
				h.quarantines(ask(bob))
			})
		})
	}
}
