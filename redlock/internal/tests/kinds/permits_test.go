package kinds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/testkit/embedded"
	"github.com/quorumlock/quorumlock/redlock"
)

// several is a Locker of n permits of a semaphore.
type several struct {
	*redlock.Semaphore
	n int
}

func (s several) Lock(ctx context.Context) (*quorumlock.Lease, error) { return s.LockN(ctx, s.n) }

func (s several) TryLock(ctx context.Context) (*quorumlock.Lease, error) { return s.TryLockN(ctx, s.n) }

// numbers returns the numbers of a lease's slots.
func numbers(l *quorumlock.Lease) (all []int) {
	for _, s := range l.Slots() {
		all = append(all, s.Number)
	}
	return all
}

func TestALeaseOfSeveralPermitsHasAsManySlots(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		d, _ := testkit.Another(t, servers)
		all := make(map[int]uint64)
		var leases []*quorumlock.Lease
		for i, n := range []int{3, 1, 4} {
			l := testkit.Lock(t, several{c.Semaphore("x", 8), n})
			slots := l.Slots()
			if len(slots) != n || !slices.IsSorted(numbers(l)) || slots[0].Number != l.Slot() || slots[0].Token != l.Token() || slots[0].Owner != l.Owner() {
				t.Errorf("lease %d: %v has the slots %+v", i, l, slots)
			}
			for _, s := range slots {
				if all[s.Number] != 0 || s.Token == 0 || s.TTL <= 0 {
					t.Errorf("%+v, beside %v", s, all)
				}
				all[s.Number] = s.Token
			}
			leases = append(leases, l)
		}
		in, err := d.Inspect(t.Context(), "x")
		testkit.Must(t, err, "Inspect")
		testkit.Equal(t, len(in.State.Slots), 8, "taken slots")
		testkit.Refused(t, d.Semaphore("x", 8))
		time.Sleep(time.Minute) // all are renewed
		for _, l := range leases {
			testkit.Held(t, l)
			first := slices.MinFunc(l.Slots(), func(a, b quorumlock.Slot) int { return cmp.Compare(a.TTL, b.TTL) })
			testkit.Equal(t, time.Until(l.ValidUntil()), first.TTL, "the validity, beside that of its slots")
		}
		testkit.UnlockAll(t, leases...)
		again := testkit.TryLock(t, several{d.Semaphore("x", 8), 8})
		for _, s := range again.Slots() {
			if s.Token <= all[s.Number] {
				t.Errorf("slot %d has token %d after %d", s.Number, s.Token, all[s.Number])
			}
		}
		testkit.Unlock(t, again)
		testkit.Equal(t, len((*quorumlock.Lease)(nil).Slots()), 0, "slots of no lease")
	})
}

func TestLockNRefusesWhatItCannotDo(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		s := c.Semaphore("x", 3)
		done, cancel := context.WithCancel(t.Context())
		cancel()
		before := testkit.Ran(servers)
		for name, tt := range map[string]struct {
			s    *redlock.Semaphore
			ctx  context.Context
			n    int
			is   error
			text string
		}{
			"none":        {s, t.Context(), 0, quorumlock.ErrMisuse, `n is 0, and the semaphore "x" has 3 permits: use 1 to 3`},
			"negative":    {s, t.Context(), -1, quorumlock.ErrMisuse, "n is -1"},
			"too many":    {s, t.Context(), 4, quorumlock.ErrMisuse, "n is 4"},
			"an owner":    {c.Semaphore("x", 3, quorumlock.WithOwner("me:1")), t.Context(), 2, quorumlock.ErrMisuse, "WithOwner"},
			"no context":  {s, nil, 2, quorumlock.ErrNilContext, ""},
			"a done one":  {s, done, 2, context.Canceled, ""},
			"no permits":  {c.Semaphore("x", 0), t.Context(), 2, quorumlock.ErrMisuse, "permits is 0"},
			"a long name": {c.Semaphore(strings.Repeat("x", 1024), 3), t.Context(), 2, quorumlock.ErrMisuse, "a lock beside the semaphore, with a longer name"},
		} {
			for call, lock := range map[string]func(context.Context, int) (*quorumlock.Lease, error){"LockN": tt.s.LockN, "TryLockN": tt.s.TryLockN} {
				if l, err := lock(tt.ctx, tt.n); l != nil || !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.text) {
					t.Errorf("%s, %s: %v, %v", name, call, l, err)
				}
			}
		}
		testkit.Equal(t, testkit.Ran(servers), before, "scripts that ran")
		l := testkit.Lock(t, several{s, 1})
		testkit.Equal(t, len(testkit.Keys(servers[0])), 2, "keys of one permit, which needs no gate")
		testkit.Unlock(t, l)
	})
}

// A call that fails has released what it had. Its error names no permit of its own as the holder.
func TestLockNTakesAllOrNone(t *testing.T) {
	testkit.Clean(t, 3, func(t *testing.T, c *redlock.Client, servers []*embedded.Server) {
		d, _ := testkit.Another(t, servers)
		other := testkit.Lock(t, several{c.Semaphore("x", 4), 2})
		const wait = 3 * time.Second
		for name, tt := range map[string]struct {
			lock  func(context.Context, int) (*quorumlock.Lease, error)
			ctx   func(context.Context) (context.Context, context.CancelFunc)
			why   error // beside ErrHeld
			takes time.Duration
		}{
			"TryLockN": {d.Semaphore("x", 4).TryLockN, context.WithCancel, quorumlock.ErrHeld, 0},
			"no wait":  {d.Semaphore("x", 4, quorumlock.WithWait(0)).LockN, context.WithCancel, context.DeadlineExceeded, 0},
			"a wait":   {d.Semaphore("x", 4, quorumlock.WithWait(wait)).LockN, context.WithCancel, context.DeadlineExceeded, wait},
			"a deadline": {d.Semaphore("x", 4).LockN, func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, wait)
			}, context.DeadlineExceeded, wait},
			"a cancel": {d.Semaphore("x", 4).LockN, func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(wait, cancel)
				return ctx, cancel
			}, context.Canceled, wait},
		} {
			ctx, cancel := tt.ctx(t.Context())
			began := time.Now()
			l, err := tt.lock(ctx, 3)
			cancel()
			testkit.Is(t, err, tt.why, "%s", name)
			if held, ok := errors.AsType[*quorumlock.HeldError](err); l != nil || !ok || held.Own || held.Name != "x" {
				t.Errorf("%s: %v, %+v, %v", name, l, held, err)
			}
			testkit.Took(t, began, tt.takes, tt.takes+10*time.Millisecond, "%s", name)
			time.Sleep(20 * time.Millisecond)
			in, err := c.Inspect(t.Context(), "x")
			if err != nil || len(in.State.Slots) != 2 || len(in.State.Queue) != 0 {
				t.Errorf("after %s: %+v, %v", name, in.State, err)
			}
		}
		testkit.UnlockAll(t, other, testkit.TryLock(t, several{d.Semaphore("x", 4), 2}))
	})
}

// A large request waits in its turn: later ones for less do not pass it. A later single permit may
// pass a LockN that waits behind another LockN: see redlock.Semaphore.
func TestLockNWaitsInTheOrderOfTheCalls(t *testing.T) {
	for name, sizes := range map[string][]int{"before single permits": {3, 1, 1, 1, 1}, "beside others": {3, 2, 4, 2, 3, 4, 2}} {
		testkit.Run(t, name, func(t *testing.T) {
			clients, servers := testkit.Fleet(t, 2, 3)
			of := func(i, n int) several { return several{clients[i%2].Semaphore("x", 4), n} }
			in := []*quorumlock.Lease{testkit.Lock(t, of(0, 2)), testkit.Lock(t, of(1, 2))}
			held := 4
			var waiting []<-chan *quorumlock.Lease
			for i, n := range sizes {
				waiting = append(waiting, testkit.Call(t, t.Context(), of(i, n).Lock))
			}
			for i, n := range sizes {
				for ; held+n > 4; in = in[1:] {
					time.Sleep(20 * time.Second) // all are renewed, and refresh their entries
					for j, w := range waiting[i:] {
						if len(w) > 0 {
							t.Errorf("waiter %d has its permits before waiter %d", i+j, i)
						}
					}
					testkit.Refused(t, of(i, 1))
					testkit.Refused(t, of(i, 2))
					held -= len(in[0].Slots())
					testkit.Unlock(t, in[0])
				}
				began := time.Now()
				l := <-waiting[i]
				testkit.Took(t, began, 0, 10*time.Millisecond, "the permits of waiter %d", i)
				in, held = append(in, l), held+n
			}
			testkit.UnlockAll(t, in...)
			testkit.Nothing(t, servers)
		})
	}
}

// Of several TryLockN at once one has its permits, if as many are free; also if another asks for too
// many, and would otherwise keep those from it for a moment.
func TestTryLockNHasAWinner(t *testing.T) {
	for seed := range testkit.Thorough(uint64(40), 8) {
		for name, sizes := range map[string][]int{"equal": {3, 3, 3, 3}, "all": {4, 4, 4, 4, 4, 4}, "too many": {3, 3, 2, 3, 3}, "singles": {4, 1, 4, 1, 4}} {
			testkit.Run(t, fmt.Sprint(name, ", seed ", seed), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 61))
				clients, servers := testkit.Fleet(t, len(sizes), 3)
				for i, c := range clients {
					testkit.Warm(t, c)
					servers[i%3].Delay(testkit.UpTo(rng, time.Millisecond))
				}
				var before *quorumlock.Lease
				if name == "too many" {
					before = testkit.Lock(t, several{clients[0].Semaphore("x", 4), 2})
				}
				var won []<-chan *quorumlock.Lease
				for i, n := range sizes {
					won = append(won, testkit.Go(func() *quorumlock.Lease {
						l, err := several{clients[i].Semaphore("x", 4), n}.TryLock(t.Context())
						if err != nil && !errors.Is(err, quorumlock.ErrHeld) {
							t.Error(err)
						}
						return l
					}))
				}
				permits := 0
				for i := range won {
					if l := <-won[i]; l != nil {
						permits += len(l.Slots())
						defer testkit.MustUnlock(t, l)
					}
				}
				if permits == 0 {
					t.Errorf("seed %d: %v have no winner", seed, sizes)
				}
				time.Sleep(20 * time.Millisecond)
				if before != nil {
					permits += 2
					testkit.Unlock(t, before)
				}
				in, err := clients[0].Inspect(t.Context(), "x")
				if err != nil || len(in.State.Slots) > permits {
					t.Errorf("seed %d: %d slots are taken, and leases have %d: %v", seed, len(in.State.Slots), permits, err)
				}
			})
		}
	}
}

// Callers with all weights, of several processes: never more permits than there are, each slot with
// one holder and rising tokens, and everybody has turns.
func TestPermitsOfManyCallers(t *testing.T) {
	for seed := range testkit.Thorough(uint64(20), 4) {
		testkit.Run(t, fmt.Sprint("seed ", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 60))
			k := 2 + rng.IntN(7)
			clients, servers := testkit.Fleet(t, 3, 3)
			for _, s := range servers {
				s.Delay(testkit.UpTo(rng, 2*time.Millisecond))
			}
			var mu sync.Mutex
			holder, tokens, granted, refused := make(map[int]int), make(map[int]uint64), 0, 0
			enter := func(caller, n int, l *quorumlock.Lease) {
				mu.Lock()
				defer mu.Unlock()
				if granted++; len(l.Slots()) != n {
					t.Errorf("%d slots, want %d", len(l.Slots()), n)
				}
				for _, s := range l.Slots() {
					if other, taken := holder[s.Number]; taken || s.Number >= k || s.Token <= tokens[s.Number] {
						t.Errorf("seed %d: slot %d of %d with token %d after %d; caller %d has it: %v", seed, s.Number, k, s.Token, tokens[s.Number], other, taken)
					}
					holder[s.Number], tokens[s.Number] = caller, s.Token
				}
			}
			leave := func(l *quorumlock.Lease) {
				mu.Lock()
				defer mu.Unlock()
				for _, s := range l.Slots() {
					delete(holder, s.Number)
				}
			}
			var running sync.WaitGroup
			for caller := range 9 {
				own := rand.New(rand.NewPCG(seed, uint64(caller)))
				running.Go(func() {
					for range 8 {
						n := 1 + own.IntN(k)
						s := several{clients[caller%3].Semaphore("x", k), n}
						var l *quorumlock.Lease
						var err error
						switch own.IntN(4) {
						case 0:
							if l, err = s.TryLock(t.Context()); errors.Is(err, quorumlock.ErrHeld) {
								mu.Lock()
								refused++
								mu.Unlock()
								continue
							}
						case 1: // it may give up
							ctx, cancel := context.WithTimeout(t.Context(), testkit.UpTo(own, 40*time.Millisecond))
							l, err = s.Lock(ctx)
							cancel()
							if errors.Is(err, context.DeadlineExceeded) {
								continue
							} else if err == nil {
								testkit.MustUnlock(t, l)
								continue
							}
						default:
							l, err = s.Lock(t.Context())
						}
						if err != nil {
							t.Errorf("seed %d: %d of %d: %v", seed, n, k, err)
							return
						}
						enter(caller, n, l)
						time.Sleep(testkit.UpTo(own, 20*time.Millisecond))
						if l.Context().Err() != nil {
							t.Errorf("seed %d: lost: %v", seed, context.Cause(l.Context()))
						}
						leave(l)
						testkit.MustUnlock(t, l)
					}
				})
			}
			running.Wait()
			if granted < 9 {
				t.Errorf("seed %d: %d grants, %d refusals", seed, granted, refused)
			}
			testkit.Nothing(t, servers)
		})
	}
}

// A slot that was lost while others were collected may come a second time: these are n-1 slots.
func TestLockNHasEachSlotOnce(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		d, _ := testkit.Another(t, servers)
		other := testkit.Lock(t, c.Semaphore("x", 4))
		got := testkit.Call(t, t.Context(), func(ctx context.Context) (*quorumlock.Lease, error) {
			return d.Semaphore("x", 4).LockN(ctx, 4)
		})
		time.Sleep(time.Second)
		in, err := c.Inspect(t.Context(), "x")
		testkit.Must(t, err, "Inspect")
		for _, s := range in.State.Slots {
			if s.Number != other.Slot() {
				testkit.OK(t, c.ForceUnlockOwner(t.Context(), "x", s.Owner), "ForceUnlockOwner")
				break
			}
		}
		time.Sleep(time.Second)
		if len(got) > 0 {
			t.Fatalf("LockN has %v of 4 slots while another holds slot %d", (<-got).Slots(), other.Slot())
		}
		testkit.Unlock(t, other)
		lease := <-got
		slots := make(map[int]bool)
		for _, s := range lease.Slots() {
			slots[s.Number] = true
		}
		testkit.Equal(t, len(slots), 4, "different slots")
		testkit.Unlock(t, lease)
	})
}

// The gate of a TryLockN whose process has died delays the others, and refuses none.
func TestADeadTryLockNRefusesNoOther(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, servers := testkit.Client(t, 3)
		d, paths := testkit.Another(t, servers)
		testkit.Warm(t, d)
		testkit.Each(paths, func(s *embedded.Server) { s.Delay(10 * time.Millisecond) })
		go func() { _, _ = d.Semaphore("x", 100).TryLockN(t.Context(), 20) }()
		time.Sleep(50 * time.Millisecond)
		testkit.Kill(paths...)
		lease, err := c.Semaphore("x", 100).TryLockN(t.Context(), 20)
		testkit.Must(t, err, "TryLockN of 20 of 100 slots, of which a dead process has a few")
		testkit.Unlock(t, lease)
	})
}
