package locktest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
)

// Conformance checks an implementation of [quorumlock.Locker] and its leases against their
// documentation. New must be set.
type Conformance struct {
	// New returns two handles on one lock that nobody holds, as two processes have them. It is
	// called for each check. It must register a Cleanup of t for everything that it starts.
	New func(t *testing.T) (a, b quorumlock.Locker)

	// Bubble runs each check in a testing/synctest bubble: without waiting, with the same outcome
	// each time. Leave it false for a Locker that uses sockets, with which a run takes some
	// seconds.
	Bubble bool
}

// Run runs each check as a subtest of t, named for the property that it checks.
func (c Conformance) Run(t *testing.T) {
	t.Helper()
	if c.New == nil {
		t.Fatal("locktest: Conformance.New is nil: set it to a function that makes two handles on one lock")
	}
	for _, check := range checks {
		t.Run(check.name, func(t *testing.T) {
			run := func(t *testing.T) {
				a, b := c.New(t)
				if a == nil || b == nil {
					t.Fatal("locktest: Conformance.New returned a nil Locker")
				}
				check.run(&conformance{t, a, b})
			}
			if c.Bubble {
				synctest.Test(t, run)
			} else {
				run(t)
			}
		})
	}
}

type conformance struct {
	*testing.T
	a, b quorumlock.Locker
}

// soon bounds how long an event may take that must happen; brief is how long a check waits to see
// that nothing happens.
const (
	soon  = 20 * time.Second
	brief = 100 * time.Millisecond
)

var checks = []struct {
	name string
	run  func(*conformance)
}{
	{"a lease says what it is of", leaseSays},
	{"a held lock is refused", heldIsRefused},
	{"tokens rise with every grant", tokensRise},
	{"Lock waits until the lock is free", lockWaits},
	{"waiters are served in the order of their calls", servedInOrder},
	{"Lock gives up when its context is done", lockGivesUp},
	{"a waiter that gives up leaves nothing behind", waiterLeavesNothing},
	{"a done context acquires nothing", doneContextAcquiresNothing},
	{"a nil context is refused", nilContextIsRefused},
	{"the context of a lease ends with it", contextEnds},
	{"the context of a lease enters the same hold", contextEnters},
	{"a second Unlock is refused", secondUnlock},
	{"Unlock releases though its context is done", unlockAlways},
	{"Extend keeps the lease", extendKeeps},
	{"UnlockAfter keeps the lock taken", keepsTaken},
	{"one of those who try at once gets it", oneOfThoseWhoTry},
	{"one holder at a time", oneHolderAtATime},
}

func (c *conformance) lock(ctx context.Context, l quorumlock.Locker) *quorumlock.Lease {
	c.Helper()
	ctx, cancel := patient(ctx)
	defer cancel()
	lease, err := l.Lock(ctx)
	if err != nil {
		c.Fatalf("Lock: %v", err)
	}
	// Releases the lock if the check fails.
	c.Cleanup(func() { _ = lease.Unlock(context.Background()) })
	return lease
}

// patient bounds how long Lock waits, but not the lease: its context stays alive after Lock
// returns.
func patient(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(soon, func() { cancel(errors.New("locktest: it took too long")) })
	return ctx, func() { timer.Stop() }
}

func (c *conformance) unlock(l *quorumlock.Lease) {
	c.Helper()
	if err := l.Unlock(c.Context()); err != nil {
		c.Errorf("Unlock: %v", err)
	}
}

func (c *conformance) refused(l quorumlock.Locker) error {
	c.Helper()
	lease, err := l.TryLock(c.Context())
	if err == nil {
		_ = lease.Unlock(context.Background())
		c.Fatal("TryLock was granted while somebody else holds the lock")
	}
	if !errors.Is(err, quorumlock.ErrHeld) {
		c.Errorf("TryLock: %v, want ErrHeld", err)
	}
	return err
}

// waits starts a call of Lock, and returns when the call has had time to queue. It ends a call that
// the check leaves behind.
func (c *conformance) waits(ctx context.Context, l quorumlock.Locker) <-chan outcome {
	ctx, cancel := context.WithCancelCause(ctx)
	done, over := make(chan outcome, 1), make(chan struct{})
	go func() {
		defer close(over)
		lease, err := l.Lock(ctx)
		done <- outcome{lease, err}
	}()
	c.Cleanup(func() {
		cancel(errors.New("locktest: the check is over"))
		select {
		case <-over:
		case <-time.After(soon):
		}
		select {
		case o := <-done:
			if o.lease != nil {
				_ = o.lease.Unlock(context.Background())
			}
		default:
		}
	})
	time.Sleep(brief)
	return done
}

func (c *conformance) granted(done <-chan outcome) *quorumlock.Lease {
	c.Helper()
	select {
	case o := <-done:
		if o.err != nil {
			c.Fatalf("Lock of a waiter: %v", o.err)
		}
		c.Cleanup(func() { _ = o.lease.Unlock(context.Background()) })
		return o.lease
	case <-time.After(soon):
		c.Fatalf("a waiter was not granted the lock within %v", soon)
		return nil
	}
}

func leaseSays(c *conformance) {
	if c.a.Name() != c.b.Name() {
		c.Errorf("the handles have the names %q and %q, want one name", c.a.Name(), c.b.Name())
	}
	lease := c.lock(c.Context(), c.a)
	if lease.Name() != c.a.Name() {
		c.Errorf("the lease is of %q, want %q", lease.Name(), c.a.Name())
	}
	if lease.Owner() == "" {
		c.Error("the lease has no owner")
	}
	if lease.Token() == 0 {
		c.Error("the lease has the fencing token 0")
	}
	if !lease.ValidUntil().After(time.Now()) {
		c.Errorf("a new lease is valid until %v, which is past", lease.ValidUntil())
	}
	if n := lease.HoldCount(); n != 1 {
		c.Errorf("the hold count of a new lease is %d, want 1", n)
	}
	c.unlock(lease)
	if n := lease.HoldCount(); n != 0 {
		c.Errorf("the hold count after Unlock is %d, want 0", n)
	}
}

func heldIsRefused(c *conformance) {
	lease := c.lock(c.Context(), c.a)
	c.refused(c.a)
	err := c.refused(c.b)
	held, ok := errors.AsType[*quorumlock.HeldError](err)
	if !ok {
		c.Errorf("TryLock: %v, want a *HeldError", err)
	} else if held.Name != c.b.Name() {
		c.Errorf("the refusal is of %q, want %q", held.Name, c.b.Name())
	}
	c.unlock(lease)
	again, err := c.b.TryLock(c.Context())
	if err != nil {
		c.Fatalf("TryLock of a lock that was released: %v", err)
	}
	c.unlock(again)
}

func tokensRise(c *conformance) {
	var last uint64
	var owners []quorumlock.Owner
	for i := range 6 {
		lease := c.lock(c.Context(), []quorumlock.Locker{c.a, c.b}[i%2])
		if lease.Token() <= last {
			c.Errorf("grant %d has the token %d after %d", i+1, lease.Token(), last)
		}
		if slices.Contains(owners, lease.Owner()) {
			c.Errorf("two grants have the owner %s", lease.Owner())
		}
		last, owners = lease.Token(), append(owners, lease.Owner())
		c.unlock(lease)
	}
}

func lockWaits(c *conformance) {
	lease := c.lock(c.Context(), c.a)
	waiter := c.waits(c.Context(), c.b)
	select {
	case o := <-waiter:
		c.Fatalf("Lock returned %v, %v while the lock is held", o.lease, o.err)
	default:
	}
	c.unlock(lease)
	next := c.granted(waiter)
	if next.Token() <= lease.Token() {
		c.Errorf("token %d after %d", next.Token(), lease.Token())
	}
	c.unlock(next)
}

func servedInOrder(c *conformance) {
	lease := c.lock(c.Context(), c.a)
	var waiters []<-chan outcome
	for i := range 4 {
		waiters = append(waiters, c.waits(c.Context(), []quorumlock.Locker{c.b, c.a}[i%2]))
	}
	for i, waiter := range waiters {
		c.unlock(lease)
		lease = c.granted(waiter)
		for later, other := range waiters[i+1:] {
			select {
			case o := <-other:
				c.Fatalf("waiter %d returned %v, %v before its turn: waiter %d has the lock", i+later+2, o.lease, o.err, i+1)
			default:
			}
		}
	}
	c.unlock(lease)
}

func lockGivesUp(c *conformance) {
	lease := c.lock(c.Context(), c.a)
	for name, want := range map[string]error{"cancelled": context.Canceled, "out of time": context.DeadlineExceeded} {
		ctx, cancel := context.WithTimeout(c.Context(), 3*brief)
		if want == context.Canceled {
			time.AfterFunc(brief, cancel)
		}
		_, err := c.b.Lock(ctx)
		if !errors.Is(err, want) || !errors.Is(err, quorumlock.ErrHeld) {
			c.Errorf("Lock with a context that is %s: %v, want %v joined with ErrHeld", name, err, want)
		}
		cancel()
	}
	c.unlock(lease)
}

func waiterLeavesNothing(c *conformance) {
	lease := c.lock(c.Context(), c.a)
	ctx, cancel := context.WithCancel(c.Context())
	first := c.waits(ctx, c.b)
	second := c.waits(c.Context(), c.b)
	cancel()
	select {
	case o := <-first:
		if o.err == nil {
			c.Fatal("a waiter that gave up was granted the lock")
		}
	case <-time.After(soon):
		c.Fatalf("Lock did not return within %v after its context was done", soon)
	}
	c.unlock(lease)
	c.unlock(c.granted(second))
	last, err := c.a.TryLock(c.Context())
	if err != nil {
		c.Fatalf("TryLock after all have left: %v", err)
	}
	c.unlock(last)
}

func doneContextAcquiresNothing(c *conformance) {
	ctx, cancel := context.WithCancel(c.Context())
	cancel()
	if _, err := c.a.Lock(ctx); !errors.Is(err, context.Canceled) {
		c.Errorf("Lock with a done context: %v, want context.Canceled", err)
	}
	if _, err := c.a.TryLock(ctx); !errors.Is(err, context.Canceled) {
		c.Errorf("TryLock with a done context: %v, want context.Canceled", err)
	}
	c.unlock(c.lock(c.Context(), c.b))
}

func nilContextIsRefused(c *conformance) {
	var none context.Context
	if _, err := c.a.Lock(none); !errors.Is(err, quorumlock.ErrNilContext) {
		c.Errorf("Lock with a nil context: %v, want ErrNilContext", err)
	}
	if _, err := c.a.TryLock(none); !errors.Is(err, quorumlock.ErrNilContext) {
		c.Errorf("TryLock with a nil context: %v, want ErrNilContext", err)
	}
	c.unlock(c.lock(c.Context(), c.b))
}

func contextEnds(c *conformance) {
	type own struct{}
	parent, cancel := context.WithCancel(context.WithValue(c.Context(), own{}, 42))
	defer cancel()
	lease := c.lock(parent, c.a)
	if lease.Context().Value(own{}) != 42 {
		c.Error("the context of the lease does not descend from that of Lock: a value is missing")
	}
	if err := lease.Context().Err(); err != nil {
		c.Fatalf("the context of a lease that is held: %v", err)
	}
	c.unlock(lease)
	if lease.Context().Err() == nil {
		c.Error("the context of the lease lives on after Unlock")
	}
	if cause := context.Cause(lease.Context()); errors.Is(cause, quorumlock.ErrLost) {
		c.Errorf("after Unlock, the cause is %v: nothing was lost", cause)
	}

	lease = c.lock(parent, c.a)
	cancel()
	if lease.Context().Err() == nil {
		c.Error("the context of the lease lives on though that of Lock was cancelled")
	}
	c.refused(c.b) // the holder may still be at work
	c.unlock(lease)
}

func contextEnters(c *conformance) {
	outer := c.lock(c.Context(), c.a)
	inner, err := c.a.TryLock(outer.Context())
	if err != nil {
		c.Fatalf("TryLock with the context of a lease: %v", err)
	}
	if inner.Token() != outer.Token() || inner.Owner() != outer.Owner() || inner.HoldCount() != 2 {
		c.Errorf("token %d, owner %s and hold count %d, want %d, %s and 2", inner.Token(), inner.Owner(), inner.HoldCount(), outer.Token(), outer.Owner())
	}
	c.unlock(outer)
	c.refused(c.b)
	if inner.Context().Err() == nil {
		c.Error("the inner lease outlives the context that it descends from")
	}
	c.unlock(inner)
	detached := context.WithoutCancel(outer.Context())
	next := c.lock(detached, c.a)
	if next.Token() <= outer.Token() {
		c.Errorf("a context that outlives its hold was given the token %d after %d", next.Token(), outer.Token())
	}
	c.unlock(next)
}

func secondUnlock(c *conformance) {
	lease := c.lock(c.Context(), c.a)
	c.unlock(lease)
	other := c.lock(c.Context(), c.b)
	if err := lease.Unlock(c.Context()); !errors.Is(err, quorumlock.ErrNotHeld) {
		c.Errorf("second Unlock: %v, want ErrNotHeld", err)
	}
	if err := lease.Extend(c.Context()); !errors.Is(err, quorumlock.ErrNotHeld) {
		c.Errorf("Extend after Unlock: %v, want ErrNotHeld", err)
	}
	c.refused(c.a) // the second Unlock has not released the other hold
	c.unlock(other)
}

func unlockAlways(c *conformance) {
	ctx, cancel := context.WithCancel(c.Context())
	lease := c.lock(ctx, c.a)
	cancel()
	if err := lease.Unlock(ctx); err != nil {
		c.Errorf("Unlock with a done context: %v", err)
	}
	c.unlock(c.lock(c.Context(), c.b))
}

func extendKeeps(c *conformance) {
	lease := c.lock(c.Context(), c.a)
	before := lease.ValidUntil()
	time.Sleep(brief)
	if err := lease.Extend(c.Context()); err != nil {
		c.Fatalf("Extend: %v", err)
	}
	if after := lease.ValidUntil(); !after.After(before) {
		c.Errorf("valid until %v after Extend, and until %v before", after, before)
	}
	ttl := 3 * time.Until(lease.ValidUntil())
	for _, to := range []time.Duration{ttl, quorumlock.MinTTL} {
		if err := lease.ExtendTo(c.Context(), to); err != nil {
			c.Fatalf("ExtendTo(%v): %v", to, err)
		}
		if left := time.Until(lease.ValidUntil()); left < ttl/2 {
			c.Errorf("ExtendTo(%v) of a lease with a TTL of %v leaves a validity of %v", to, ttl, left)
		}
	}
	c.refused(c.b)
	c.unlock(lease)
}

func keepsTaken(c *conformance) {
	const keep = time.Second
	lease := c.lock(c.Context(), c.a)
	start := time.Now()
	if err := lease.UnlockAfter(c.Context(), keep); err != nil {
		c.Fatalf("UnlockAfter: %v", err)
	}
	c.refused(c.a)
	c.refused(c.b)
	next := c.lock(c.Context(), c.b)
	if taken := time.Since(start); taken < keep*9/10 {
		c.Errorf("the lock was kept for %v, want %v", taken, keep)
	}
	c.unlock(next)
}

func oneOfThoseWhoTry(c *conformance) {
	for range 5 {
		var wg sync.WaitGroup
		leases := make([]*quorumlock.Lease, 4)
		for i := range leases {
			wg.Go(func() {
				lease, err := []quorumlock.Locker{c.a, c.b}[i%2].TryLock(c.Context())
				if err != nil && !errors.Is(err, quorumlock.ErrHeld) {
					c.Errorf("TryLock: %v, want a lease or ErrHeld", err)
				}
				leases[i] = lease
			})
		}
		wg.Wait()
		won := 0
		for _, lease := range leases {
			if lease != nil {
				won++
				c.unlock(lease)
			}
		}
		if won != 1 {
			c.Fatalf("%d of %d who tried a free lock at the same time got it, want one", won, len(leases))
		}
	}
}

func oneHolderAtATime(c *conformance) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	inside, grants, last := 0, 0, uint64(0)
	for i := range 4 {
		wg.Go(func() {
			for range 5 {
				ctx, cancel := patient(c.Context())
				err := quorumlock.Do(ctx, []quorumlock.Locker{c.a, c.b}[i%2], func(context.Context) error {
					mu.Lock()
					inside++
					grants++
					if inside != 1 {
						c.Errorf("%d holders at a time", inside)
					}
					mu.Unlock()
					time.Sleep(time.Millisecond)
					mu.Lock()
					inside--
					mu.Unlock()
					return nil
				})
				cancel()
				if err != nil {
					c.Errorf("Do: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if grants != 20 {
		c.Errorf("%d grants, want 20", grants)
	}
	for range 2 { // and the tokens go on
		lease := c.lock(c.Context(), c.a)
		if lease.Token() <= last {
			c.Errorf("token %d after %d", lease.Token(), last)
		}
		last = lease.Token()
		c.unlock(lease)
	}
}
