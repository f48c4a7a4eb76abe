package forgery

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/redlock"
)

// scene is the state before a forgery: x was acquired, y was handed over, and each has a waiter. A
// third lock has a waiter, too.
type scene struct {
	*forger
	x, y       *quorumlock.Lease
	g          genuine // the messages that handed y over
	forX, forY quorumlock.Owner
	// Wake channels: of the other lock's waiter, and of x's waiter.
	bystander, ofOne string
}

// forgery is a message for a channel. It is published at one server, or at all if there is none.
type forgery struct {
	channel, message string
	server           int
}

const everywhere = -1

// forgeries are the possible messages of a forger, which knows the form of the messages, and can
// guess the numbers of waiters and attempts. A repeated guess comes true, since a wake-up makes the
// waiter try again under the next number.
var forgeries = map[string]func(s *scene) []forgery{
	"genuine messages, on every channel": func(s *scene) (all []forgery) {
		for _, channel := range s.channels() {
			for _, m := range s.g.messages {
				all = append(all, forgery{channel, m.message, everywhere})
			}
		}
		return all
	},
	"genuine messages with a field changed": func(s *scene) (all []forgery) {
		names := []string{string(s.x.Owner()), string(s.y.Owner()), string(s.g.waiter), string(s.forX), string(s.forY)}
		for _, channel := range s.channels() {
			for _, mutant := range mutants(s.g.messages[0].message, names...) {
				all = append(all, forgery{channel, mutant, everywhere})
			}
		}
		return all
	},
	"handoffs for the waiter": func(s *scene) (all []forgery) {
		// Either number may be the attempt's, or there is none to guess.
		for _, numbers := range []func(attempt, cell int) []int{
			func(attempt, cell int) []int { return []int{attempt, cell} },
			func(attempt, cell int) []int { return []int{cell, attempt} },
			func(attempt, _ int) []int { return []int{attempt, attempt} },
			func(int, int) []int { return nil },
		} {
			for attempt := range 60 {
				for _, m := range s.g.messages[:len(s.servers)/2+1] {
					all = append(all, forgery{s.ofOne, s.g.forged(m, s.forX, highToken, "x", numbers(attempt, m.server)...), m.server})
				}
			}
		}
		return all
	},
	"handoffs that nobody waited for, of an application's key": func(s *scene) (all []forgery) {
		for _, m := range s.g.messages {
			for _, numbers := range [][]int{{11, 12}, {12, 11}, {11, 11}, nil} {
				message := s.g.forged(m, "2024", highToken, "visits", numbers...)
				all = append(all, forgery{s.bystander, message, m.server}, forgery{s.g.channel, message, m.server})
			}
		}
		return all
	},
	"turns and garbage": func(s *scene) (all []forgery) {
		messages := []string{
			"", " ", "0", "-1", "\x00", "\xff\xfe", "turn", "next", "handoff", "turn ", "handoff      ", "turn  x", "nonsense of a stranger's", "handoff * * * * * *",
			"handoff nobody:1 1 0 5 proof x", "handoff :1 1 0 5 proof x", "handoff " + string(s.forX), "handoff " + string(s.forX) + " 1 0 5 proof x",
			strings.Repeat("handoff ", 1<<14), "turn " + strings.Repeat("y", 1<<16) + " x", "*1\r\n$4\r\nPING\r\n", "$-1\r\n",
		}
		for _, w := range []quorumlock.Owner{s.forX, s.forY, s.x.Owner(), "nobody:1"} {
			messages = append(messages, fmt.Sprintf("turn %s x", w), fmt.Sprintf("next %s x", w), fmt.Sprintf("turn %s y", w), fmt.Sprintf("next %s ", w), fmt.Sprintf("turn %s  x ", w))
		}
		for _, channel := range append(s.channels(), wire.UnlockChannel("x"), wire.UnlockChannel("y")) {
			for _, message := range messages {
				all = append(all, forgery{channel, message, everywhere})
			}
		}
		return all
	},
}

// A client that may publish, but touches no key, ends, shortens and fakes no hold, and makes no
// client write to a key. Waiters are served in their turns, even during a flood. Messages sent
// while y was held are repeated when it is over.
func TestAForgerEndsShortensAndFakesNoHold(t *testing.T) {
	for name, say := range forgeries {
		t.Run(name, func(t *testing.T) {
			forging(t, 6, func(t *testing.T, f *forger, c []*redlock.Client, servers []*embedded.Server) {
				other := testkit.MustLock(t, c[0].Mutex("other"))
				otherWaiter := testkit.Waiter(t, c[4].Mutex("other"))
				s := &scene{forger: f, bystander: f.channelOf(waiterFor(t, c[0], "other")), x: testkit.MustLock(t, c[0].Mutex("x"))}
				s.g, s.y = f.handOver(c[0], c[1], "y")
				waitsX, waitsY := testkit.Waiter(t, c[2].Mutex("x")), testkit.Waiter(t, c[3].Mutex("y"))
				s.forX, s.forY = waiterFor(t, c[0], "x"), waiterFor(t, c[0], "y")
				s.ofOne = f.channelOf(s.forX)
				// The handed over lock is renewed for the whole TTL.
				time.Sleep(100 * time.Millisecond)
				for _, server := range servers {
					server.Redis.HSet("visits", "2024/11", "4711")
				}
				given := testkit.Ran(servers, "leave", "release")
				check := func(what string) {
					t.Helper()
					none(t, waitsX, s.x)
					none(t, waitsY, s.y)
					none(t, otherWaiter, other)
					untouched(t, servers, s.x)
					untouched(t, servers, s.y)
					testkit.Equal(t, testkit.Ran(servers, "leave", "release")-given, 0, "scripts that give back were sent")
					if t.Failed() {
						t.Fatalf("after %.200q", what)
					}
				}
				until := s.x.ValidUntil()
				for i, m := range say(s) {
					if m.server == everywhere {
						f.tellAll(m.channel, m.message)
					} else {
						f.tell(m.server, m.channel, m.message)
						synctest.Wait()
					}
					if i%50 == 0 {
						time.Sleep(time.Millisecond)
					}
					if i%10 == 0 {
						check(m.message)
					}
				}
				check("all")
				if s.x.ValidUntil().Before(until) {
					t.Errorf("the lease is valid until %v, and was until %v before", s.x.ValidUntil(), until)
				}
				time.Sleep(time.Minute)
				check("a minute")
				testkit.Refused(t, c[5].Mutex("x"))
				testkit.Refused(t, c[5].Mutex("y"))

				again := func() {
					all := say(s)
					for _, m := range all[:min(len(all), 20)] {
						f.tellAll(m.channel, m.message)
					}
				}
				testkit.MustUnlock(t, s.x)
				testkit.MustUnlock(t, s.y)
				again()
				x, y := testkit.Served(t, waitsX, s.x), testkit.Served(t, waitsY, s.y)
				// A forged turn made the waiter begin another attempt; a renewal restores the node
				// handed to that one.
				time.Sleep(quorumlock.DefaultTTL / 2)
				again()
				untouched(t, servers, x)
				untouched(t, servers, y)
				testkit.MustUnlock(t, x)
				testkit.MustUnlock(t, y)
				testkit.MustUnlock(t, other)
				testkit.MustUnlock(t, testkit.Served(t, otherWaiter, other))
				for _, server := range servers {
					if server.Redis.HGet("visits", "2024/11") != "4711" {
						t.Errorf("%s has lost what an application keeps", server.Name)
					}
					server.Redis.Del("visits")
				}
				testkit.NoLocks(t, servers)
			})
		})
	}
}

// A minority hands the lock over from another holder. Their messages count for them alone.
func TestAHandoffReplayedAtTheOtherNodesFakesNoHold(t *testing.T) {
	forging(t, 2, func(t *testing.T, f *forger, c []*redlock.Client, servers []*embedded.Server) {
		const stranger quorumlock.Owner = "stranger:1"
		_, minority := testkit.Paths(t, servers[:(len(servers)-1)/2])
		for _, n := range minority {
			if a, err := n.Acquire(t.Context(), "x", stranger, time.Hour, 1); err != nil || !a.Granted {
				t.Fatalf("Acquire: %+v, %v", a, err)
			}
		}
		_, first := f.handOver(c[0], c[1], "first") // it listens from then on
		testkit.MustUnlock(t, first)
		holder := testkit.MustLock(t, c[0].Mutex("x"))
		got := testkit.Waiter(t, c[1].Mutex("x"))
		g := genuine{name: "x", waiter: waiterFor(t, c[0], "x")}
		g.channel = f.channelOf(g.waiter)
		f.take("")
		for _, n := range minority {
			testkit.Must(t, testkit.Err(n.Release(t.Context(), "x", stranger, 1)), "Release")
		}
		g.messages = f.take(g.channel)
		if len(g.messages) < len(minority) {
			t.Fatalf("control: %d nodes told the waiter %+v", len(minority), g.messages)
		}
		for _, m := range g.messages {
			for i := range servers {
				if i == m.server {
					continue
				}
				f.tell(i, g.channel, m.message)
				for _, forgery := range g.renumbered(m, i) {
					f.tell(i, g.channel, forgery)
				}
			}
		}
		none(t, got, holder)
		time.Sleep(time.Minute)
		none(t, got, holder)
		testkit.Held(t, holder)
		testkit.MustUnlock(t, holder)
		testkit.MustUnlock(t, testkit.Served(t, got, holder))
		testkit.NoLocks(t, servers)
	})
}

// One node has handed the lock over, and the others are about to. The message of the first is sent
// again, with another token.
func TestAHandoffReplayedWithAnotherTokenDoesNotChangeTheToken(t *testing.T) {
	forging(t, 2, func(t *testing.T, f *forger, c []*redlock.Client, servers []*embedded.Server) {
		g, lease := f.handOver(c[0], c[1], "template") // shows which number is the token
		testkit.MustUnlock(t, lease)
		holder := testkit.MustLock(t, c[0].Mutex("x"))
		got := testkit.Waiter(t, c[1].Mutex("x"))
		g.waiter, g.name = waiterFor(t, c[0], "x"), "x"
		late := make(chan struct{})
		for _, s := range servers[1:] {
			testkit.Block(s, "release", 1, late)
		}
		f.take("")
		unlocked := testkit.Go(func() error { return holder.Unlock(t.Context()) })
		g.messages = f.take(g.channel)
		if len(g.messages) == 0 {
			t.Fatal("control: the first node has told nothing")
		}
		g.token = testkit.Counters(t, servers[:1], "x")[0]
		for _, m := range g.messages {
			for _, token := range []uint64{highToken, g.token + 1, g.token - 1, 1, 0} {
				f.tell(m.server, g.channel, g.forged(m, g.waiter, token, "x"))
				synctest.Wait()
			}
			// Once more, as the last.
			f.tell(m.server, g.channel, g.forged(m, g.waiter, highToken, "x"))
		}
		synctest.Wait()
		close(late)
		next := testkit.Served(t, got, holder)
		testkit.OK(t, <-unlocked, "Unlock")
		synctest.Wait()
		testkit.Sane(t, servers, "x")
		testkit.MustUnlock(t, next)
		testkit.NoLocks(t, servers)
	})
}
