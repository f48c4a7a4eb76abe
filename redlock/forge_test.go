package redlock_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/redlock"
)

// The message that handed the lock to its holder is sent to another client. That client has the rights to release
// anything, and must not be talked into it.
func TestAHandoffSentToAnotherClientTakesNoLockAway(t *testing.T) {
	forging(t, 4, func(t *testing.T, f *forger, c []*redlock.Client, servers []*embedded.Server) {
		other := locktest.MustLock(t, c[0].Mutex("other"))
		bystander := locktest.Waiter(t, c[2].Mutex("other")) // it listens, for another lock
		channel := f.channelOf(waiterFor(t, c[0], "other"))
		g, lease := f.handOver(c[0], c[1], "x")
		time.Sleep(100 * time.Millisecond) // renewed for the whole TTL
		untouched(t, servers, lease)

		for _, m := range g.messages {
			f.tell(m.server, channel, m.message)
		}
		untouched(t, servers, lease)
		third, err := c[3].Mutex("x").TryLock(t.Context())
		if err == nil {
			if lease.Context().Err() == nil {
				t.Errorf("token %d was granted while the lease with token %d is valid for %v", third.Token(), lease.Token(), time.Until(lease.ValidUntil()))
			}
			locktest.MustUnlock(t, third)
		}
		time.Sleep(time.Minute)
		untouched(t, servers, lease)
		locktest.MustUnlock(t, other)
		locktest.MustUnlock(t, locktest.Served(t, bystander, other))
		if err := lease.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock: %v", err)
		}
		locktest.NoLocks(t, servers)
	})
}

// The form of the message is known, and the waiter's number is easily guessed. So is that of its attempt: a guess that
// is repeated comes true, since a wake-up makes the waiter try again under the next number.
func TestAForgedHandoffToTheWaiterItselfGivesNoSecondLease(t *testing.T) {
	forging(t, 2, func(t *testing.T, f *forger, c []*redlock.Client, servers []*embedded.Server) {
		g, lease := f.handOver(c[0], c[1], "template")
		locktest.MustUnlock(t, lease)

		store := &locktest.Resource{T: t}
		holder := locktest.MustLock(t, c[0].Mutex("x"))
		store.Enter(holder)
		got := locktest.Waiter(t, c[1].Mutex("x"))
		waiter := waiterFor(t, c[0], "x")
		// Of the two numbers in a message either is the attempt's, or there is none to guess.
		for i, numbers := range []func(attempt, cell int) []int{
			func(attempt, cell int) []int { return []int{attempt, cell} },
			func(attempt, cell int) []int { return []int{cell, attempt} },
			func(attempt, _ int) []int { return []int{attempt, attempt} },
			func(_, cell int) []int { return []int{cell, cell} },
			func(_, _ int) []int { return nil },
		} {
			for range 40 {
				for _, m := range g.messages[:len(servers)/2+1] { // one after the other: what is woken tries again once
					f.tell(m.server, g.channel, g.forged(m, waiter, highToken, "x", numbers(30*i+20, m.server)...))
					synctest.Wait()
				}
				select {
				case second := <-got:
					if second == nil {
						t.FailNow()
					}
					t.Errorf("a forged message gave the waiter a lease with token %d, valid for %v, while the holder's, with token %d, is valid for %v",
						second.Token(), time.Until(second.ValidUntil()), holder.Token(), time.Until(holder.ValidUntil()))
					store.Write(second.Token())
					if !store.Write(holder.Token()) {
						t.Errorf("the store takes no write of the holder's any more, with token %d", holder.Token())
					}
					return
				default:
				}
			}
		}
		time.Sleep(time.Minute)
		none(t, got, holder)
		untouched(t, servers, holder)
		store.Leave(holder)
		locktest.MustUnlock(t, holder)
		next := locktest.Served(t, got, holder)
		store.Enter(next)
		store.Leave(next)
		locktest.MustUnlock(t, next)
		locktest.NoLocks(t, servers)
	})
}

// A client that hears of a handoff it never waited for sends nothing, least of all to a key that is no lock. The rights
// on keys are the client's, not the forger's.
func TestAForgedHandoffMakesNoClientWriteToAKeyOfTheForgersChoice(t *testing.T) {
	forging(t, 3, func(t *testing.T, f *forger, c []*redlock.Client, servers []*embedded.Server) {
		other := locktest.MustLock(t, c[0].Mutex("other"))
		got := locktest.Waiter(t, c[2].Mutex("other"))
		channel := f.channelOf(waiterFor(t, c[0], "other"))
		g, lease := f.handOver(c[0], c[1], "template")
		locktest.MustUnlock(t, lease)
		synctest.Wait()
		before := make([]string, len(servers))
		for i, s := range servers {
			s.Redis.HSet("visits", "2024/11", "4711", "2024/12", "815")
			before[i] = s.Redis.Dump()
		}
		sent := ran(servers, "leave") + ran(servers, "release") + ran(servers, "acquire")
		for range 20 {
			for _, m := range g.messages {
				for _, numbers := range [][]int{{11, 12}, {12, 11}, {11, 11}, nil} {
					forgery := g.forged(m, "2024", highToken, "visits", numbers...)
					f.tell(m.server, channel, forgery)
					f.tell(m.server, g.channel, forgery)
				}
			}
			synctest.Wait()
		}
		if n := ran(servers, "leave") + ran(servers, "release") + ran(servers, "acquire") - sent; n > 0 {
			t.Errorf("forged messages made clients send %d scripts, want none", n)
		}
		for i, s := range servers {
			if s.Redis.HGet("visits", "2024/11") != "4711" || s.Redis.HGet("visits", "2024/12") != "815" {
				t.Errorf("%s has lost what an application keeps at %q", s.Name, "visits")
			}
			if s.Redis.Dump() != before[i] {
				t.Errorf("%s has other keys than before the forged messages", s.Name)
			}
			s.Redis.Del("visits")
		}
		locktest.MustUnlock(t, other)
		locktest.MustUnlock(t, locktest.Served(t, got, other))
		locktest.NoLocks(t, servers)
	})
}

// mutants returns all that is made of a message by changing one of its fields.
func mutants(message string, others ...string) []string {
	fields := strings.Split(message, " ")
	var all []string
	add := func(fields ...string) { all = append(all, strings.Join(fields, " ")) }
	values := append([]string{
		"", " ", "0", "1", "2", "3", "4", "5", "-1", "007", "1e3", "0x1", "9007199254740000", "9007199254740991", "9223372036854775807", "18446744073709551615",
		"18446744073709551616", "-9223372036854775808", "*", "/", ":", "x", "y", "\x00", "\n", "\xff", "handoff", "turn", "next", "é", strings.Repeat("9", 400),
	}, others...)
	for i := range fields {
		for _, v := range values {
			changed := slices.Clone(fields)
			changed[i] = v
			add(changed...)
		}
		add(slices.Delete(slices.Clone(fields), i, i+1)...)
		add(slices.Insert(slices.Clone(fields), i, fields[i])...)
		add(fields[:i]...)
		add(fields[i:]...)
		if i > 0 {
			swapped := slices.Clone(fields)
			swapped[i-1], swapped[i] = swapped[i], swapped[i-1]
			add(swapped...)
		}
	}
	return append(all, message, message+" ", " "+message, message+"\n"+message, strings.ToUpper(message), strings.ReplaceAll(message, " ", "  "))
}

// Every genuine message, with every field changed, on every channel and at every node: while one holds that has made
// an attempt, one that was handed its lock, and others wait for both.
func TestChangedHandoffsNeverEndShortenOrFakeAHold(t *testing.T) {
	forging(t, 5, func(t *testing.T, f *forger, c []*redlock.Client, servers []*embedded.Server) {
		x := locktest.MustLock(t, c[0].Mutex("x"))
		g, y := f.handOver(c[0], c[1], "y")
		forX, forY := locktest.Waiter(t, c[2].Mutex("x")), locktest.Waiter(t, c[3].Mutex("y"))
		names := []string{string(x.Owner()), string(y.Owner()), string(g.waiter), string(waiterFor(t, c[0], "x")), string(waiterFor(t, c[0], "y"))}
		for _, m := range []told{g.messages[0], g.messages[len(g.messages)-1]} {
			for i, mutant := range mutants(m.message, names...) {
				for _, channel := range f.channels() {
					f.tellAll(channel, mutant)
				}
				if i%50 == 0 {
					time.Sleep(time.Millisecond)
				}
				none(t, forX, x)
				none(t, forY, y)
				untouched(t, servers, x)
				untouched(t, servers, y)
				if t.Failed() {
					t.Fatalf("after %q", mutant)
				}
			}
		}
		locktest.Refused(t, c[4].Mutex("x"))
		locktest.Refused(t, c[4].Mutex("y"))
		time.Sleep(time.Minute)
		untouched(t, servers, x)
		untouched(t, servers, y)
		locktest.MustUnlock(t, x)
		locktest.MustUnlock(t, y)
		locktest.MustUnlock(t, locktest.Served(t, forX, x))
		locktest.MustUnlock(t, locktest.Served(t, forY, y))
		locktest.NoLocks(t, servers)
	})
}

// Forged turns and garbage cost the waiters attempts, and nobody the lock. They do not keep it from those whose turn
// it is, either.
func TestForgedTurnsAndGarbageNeverEndShortenOrFakeAHold(t *testing.T) {
	forging(t, 5, func(t *testing.T, f *forger, c []*redlock.Client, servers []*embedded.Server) {
		x := locktest.MustLock(t, c[0].Mutex("x"))
		first := locktest.Waiter(t, c[1].Mutex("x"))
		one := waiterFor(t, c[0], "x")
		second := locktest.Waiter(t, c[2].Mutex("x"))
		two := waiterFor(t, c[0], "x")
		third := locktest.Waiter(t, c[3].Mutex("x", quorumlock.WithoutRenewal()))
		three := waiterFor(t, c[0], "x")

		messages := []string{
			"", " ", "0", "1", "-1", "\x00", "\xff\xfe", "turn", "next", "handoff", "turn ", "next ", "handoff ", "handoff      ", "turn  x", "nonsense of a stranger's",
			"turn nobody:1 x", "next nobody:1 x", "handoff nobody:1 1 0 5 proof x", "handoff :1 1 0 5 proof x", "handoff * * * * * *", "handoff " + string(one), "handoff " + string(one) + " 1 0 5", "handoff " + string(one) + " 1 0 5 proof x",
			strings.Repeat("handoff ", 1<<14), strings.Repeat("x", 1<<16), "turn " + strings.Repeat("y", 1<<16) + " x", "*1\r\n$4\r\nPING\r\n", "$-1\r\n", "*-1\r\n",
		}
		for _, w := range []quorumlock.Owner{one, two, three, x.Owner()} {
			messages = append(messages, fmt.Sprintf("turn %s x", w), fmt.Sprintf("next %s x", w), fmt.Sprintf("turn %s y", w), fmt.Sprintf("next %s ", w), fmt.Sprintf("turn %s  x ", w))
		}
		channels := append(f.channels(), wire.UnlockChannel("x"), wire.UnlockChannel("y"))
		until, ttls := x.ValidUntil(), make([]time.Duration, len(servers))
		for range 2 {
			for i, s := range servers {
				ttls[i] = s.Redis.TTL("x")
			}
			for _, message := range messages {
				for _, channel := range channels {
					f.tellAll(channel, message)
				}
				for _, got := range []<-chan *quorumlock.Lease{first, second, third} {
					none(t, got, x)
				}
				untouched(t, servers, x)
				if t.Failed() {
					t.Fatalf("after %.100q", message)
				}
			}
			for i, s := range servers {
				if ttl := s.Redis.TTL("x"); ttl < ttls[i]-time.Second {
					t.Errorf("%s expires the lock in %v, and %v before the forged messages", s.Name, ttl, ttls[i])
				}
			}
			if x.ValidUntil().Before(until) {
				t.Errorf("the lease is valid until %v, and was until %v before", x.ValidUntil(), until)
			}
			time.Sleep(time.Second)
		}
		locktest.Refused(t, c[4].Mutex("x"))

		// They are served in their order, however loud it is.
		locktest.MustUnlock(t, x)
		before := x
		for _, got := range []<-chan *quorumlock.Lease{first, second, third} {
			for _, channel := range channels {
				for _, message := range messages[len(messages)-20:] {
					f.tellAll(channel, message)
				}
			}
			lease := locktest.Served(t, got, before)
			locktest.Held(t, lease)
			if n := locktest.Holds(servers, "x", lease.Owner()); n <= len(servers)/2 {
				t.Errorf("%d of %d servers have the lock of a new lease", n, len(servers))
			}
			before = lease
			locktest.MustUnlock(t, lease)
		}
		locktest.NoLocks(t, servers)
	})
}
