package kinds

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/wire"
	"github.com/quorumlock/quorumlock/redlock"
)

func TestASemaphoreLetsInAsManyAsItHasPermits(t *testing.T) {
	for _, k := range []int{1, 3, 100} {
		for _, n := range []int{1, 3} {
			locktest.Run(t, fmt.Sprint(k, " permits, ", n, " nodes"), func(t *testing.T) {
				c, servers := locktest.Client(t, n)
				d, _ := locktest.Another(t, servers)
				slots := map[int]bool{}
				var leases []*quorumlock.Lease
				for i := range k {
					l := locktest.TryLock(t, []*redlock.Client{c, d}[i%2].Semaphore("x", k))
					if l.Slot() < 0 || l.Slot() >= k || slots[l.Slot()] {
						t.Errorf("slot %d of %d, after %v", l.Slot(), k, slots)
					}
					slots[l.Slot()] = true
					leases = append(leases, l)
				}
				began := time.Now()
				_, err := d.Semaphore("x", k).TryLock(t.Context())
				if held, ok := errors.AsType[*quorumlock.HeldError](err); !ok || held.Holder == "" || held.TTL <= 0 {
					t.Errorf("TryLock of a full semaphore: %v, want a HeldError with a holder and the TTL", err)
				}
				if took := time.Since(began); took > 10*time.Millisecond {
					t.Errorf("the refusal took %v", took)
				}
				in, err := c.Semaphore("x", k).Inspect(t.Context())
				if err != nil || len(in.State.Slots) != k || !in.State.Held() {
					t.Errorf("%+v, %v: want %d slots", in.State, err, k)
				}
				for i, s := range in.State.Slots {
					if s.Number != i || s.Owner == "" || s.TTL <= 0 || s.Token == 0 {
						t.Errorf("slot %d is %+v", i, s)
					}
				}
				time.Sleep(25 * time.Second)
				slot := leases[0].Slot()
				locktest.Held(t, leases[0])
				locktest.Unlock(t, leases[0])
				l := locktest.TryLock(t, d.Semaphore("x", k))
				if l.Slot() != slot {
					t.Errorf("the only free slot is %d, and the lease has %d", slot, l.Slot())
				}
				leases[0] = l
				for _, l := range leases {
					locktest.Unlock(t, l)
				}
				locktest.Nothing(t, servers)
			})
		}
	}
}

func TestASemaphoreServesInTheOrderOfTheCalls(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		clients := []*redlock.Client{c, d}
		var in []*quorumlock.Lease
		for range 3 {
			in = append(in, locktest.Lock(t, c.Semaphore("x", 3)))
		}
		var waiting []<-chan *quorumlock.Lease
		for i := range 9 {
			waiting = append(waiting, locktest.Call(t, t.Context(), clients[i%2].Semaphore("x", 3).Lock))
		}
		locktest.Refused(t, d.Semaphore("x", 3))
		for i, w := range waiting {
			slot := in[0].Slot()
			locktest.Unlock(t, in[0])
			began := time.Now()
			l := <-w
			if took := time.Since(began); took > 10*time.Millisecond {
				t.Errorf("the handoff to waiter %d took %v", i, took)
			}
			if l.Slot() != slot {
				t.Errorf("slot %d was released, and waiter %d has %d", slot, i, l.Slot())
			}
			for j, later := range waiting[i+1:] {
				if len(later) > 0 {
					t.Fatalf("waiter %d has overtaken waiter %d", i+1+j, i)
				}
			}
			in = append(in[1:], l)
		}
		for _, l := range in {
			locktest.Held(t, l)
			locktest.Unlock(t, l)
		}
		locktest.Nothing(t, servers)
	})
}

func TestANodeThatForgotGetsTheSlotsBack(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		a := locktest.Lock(t, c.Semaphore("x", 3))
		b := locktest.Lock(t, d.Semaphore("x", 3))
		servers[0].Redis.FlushAll()
		time.Sleep(5 * time.Second)
		in, err := c.Semaphore("x", 3).Inspect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range in.Nodes {
			if len(n.State.Slots) != 2 {
				t.Errorf("node %d has %+v", i, n.State.Slots)
			}
			for _, s := range n.State.Slots {
				if l := map[quorumlock.Owner]*quorumlock.Lease{a.Owner(): a, b.Owner(): b}[s.Owner]; l == nil || l.Slot() != s.Number {
					t.Errorf("node %d has %+v", i, s)
				}
			}
		}
		third := locktest.TryLock(t, d.Semaphore("x", 3))
		locktest.Refused(t, c.Semaphore("x", 3))
		for _, l := range []*quorumlock.Lease{a, b, third} {
			locktest.Held(t, l)
			locktest.Unlock(t, l)
		}
		locktest.Nothing(t, servers)
	})
}

// Two clients with different numbers of permits: neither gets a slot beyond its own number, and the
// one with more can have the rest.
func TestDifferentNumbersOfPermits(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		few, many := c.Semaphore("x", 2), d.Semaphore("x", 4)
		var in []*quorumlock.Lease
		for range 2 {
			l := locktest.TryLock(t, few)
			if l.Slot() > 1 {
				t.Errorf("slot %d of 2", l.Slot())
			}
			in = append(in, l)
		}
		locktest.Refused(t, few)
		for range 2 {
			l := locktest.TryLock(t, many)
			if l.Slot() < 2 {
				t.Errorf("slot %d is taken", l.Slot())
			}
			in = append(in, l)
		}
		locktest.Refused(t, many)
		waiting := locktest.Call(t, t.Context(), few.Lock)
		locktest.Unlock(t, in[3]) // not one of the first two
		if locktest.Has(waiting) {
			t.Fatal("the one with 2 permits has a third slot")
		}
		locktest.Unlock(t, in[0])
		l := <-waiting
		if l.Slot() != in[0].Slot() {
			t.Errorf("slot %d, and %d was released", l.Slot(), in[0].Slot())
		}
		for _, l := range []*quorumlock.Lease{l, in[1], in[2]} {
			locktest.Unlock(t, l)
		}
		locktest.Nothing(t, servers)
	})
}

// A called waiter asks at once, for the slot that the message names, if there is such a slot.
func TestAWaiterThatIsCalledForASlotAsksForIt(t *testing.T) {
	const name, permits = "two words", 8
	for said, want := range map[string]int{"5": 5, "0": 0, "8": -1, "-1": -1, "99999999999": -1, "1.5": -1, "": -1} {
		locktest.Run(t, said, func(t *testing.T) {
			c, servers := locktest.Client(t, 3)
			for range permits {
				locktest.TryLock(t, c.Semaphore(name, permits))
			}
			d, _ := locktest.Another(t, servers)
			done := make(chan *quorumlock.Lease)
			go func() { done <- locktest.Lock(t, d.Semaphore(name, permits)) }()
			time.Sleep(10 * time.Millisecond)
			for _, s := range servers { // this tells nobody
				s.Redis.Del(name)
				s.Redis.Del(wire.SlotsKey(name))
			}
			for _, s := range servers {
				queue, err := s.Redis.ZMembers(wire.QueueKey(name))
				if err != nil || len(queue) != 1 {
					t.Fatalf("control: %v %v", queue, err)
				}
				client, _, _ := strings.Cut(queue[0], ":")
				if s.Redis.Publish(wire.WakeChannel(client), fmt.Sprintf("slot %s %s %s", queue[0], said, name)) != 1 {
					t.Fatal("control: nobody listens")
				}
			}
			began := time.Now()
			l := <-done
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("it came after %v", took)
			}
			if want >= 0 && l.Slot() != want {
				t.Errorf("it has slot %d, want %d", l.Slot(), want)
			}
		})
	}
}

// A node that has lost its data takes held slots for free. A TryLock is still refused soon.
func TestANodeThatForgotDoesNotHoldUpARefusal(t *testing.T) {
	locktest.Bubble(t, func(t *testing.T) {
		c, servers := locktest.Client(t, 3)
		d, _ := locktest.Another(t, servers)
		a, b := locktest.Lock(t, c.Semaphore("x", 2)), locktest.Lock(t, c.Semaphore("x", 2))
		servers[1].Redis.FlushAll()
		began := time.Now()
		locktest.Refused(t, d.Semaphore("x", 2))
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("the refusal took %v", took)
		}
		locktest.Unlock(t, a)
		locktest.Unlock(t, b)
		locktest.Nothing(t, servers)
	})
}
