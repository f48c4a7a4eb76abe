package locktest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/locktest/nodetest"
	"github.com/quorumlock/quorumlock/redlock"
)

// Code under test, with locks of each kind:

func refresh(ctx context.Context, catalogue *redlock.RWMutex, load func(context.Context) error) error {
	return quorumlock.Do(ctx, catalogue, load)
}

func crawl(ctx context.Context, hosts *redlock.Semaphore, pages int) error {
	lease, err := hosts.TryLockN(ctx, pages)
	if err != nil {
		return err
	}
	return lease.Unlock(ctx)
}

func merge(ctx context.Context, shards *redlock.Latch) error { return shards.Wait(ctx) }

func lead(ctx context.Context, e *election.Election, work func(context.Context) error) error {
	return e.Run(ctx, work) // it campaigns again after a loss
}

func resume(ctx context.Context, client *redlock.Client, text string) error {
	lease, err := client.Attach(ctx, text)
	if err != nil {
		return err
	}
	return lease.Unlock(ctx)
}

func want(t *testing.T, err, wanted error) {
	t.Helper()
	if !errors.Is(err, wanted) {
		t.Fatalf("%v, want %v", err, wanted)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// within returns a context that ends after a second, which takes no time in a bubble.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	t.Cleanup(cancel)
	return ctx
}

func testRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := nodetest.Start(t, 3)
		catalogue, other := nodes.Client().RWMutex("catalogue"), nodes.NewClient() // other is another process
		load := func(context.Context) error { return nil }
		reader, err := other.RWMutex("catalogue").RLock(t.Context())
		must(t, err)
		want(t, refresh(within(t), catalogue, load), quorumlock.ErrHeld)
		must(t, reader.Unlock(t.Context()))
		want(t, refresh(t.Context(), catalogue, func(ctx context.Context) error {
			must(t, other.ForceUnlock(ctx, "catalogue")) // its holder hears of it within a third of the TTL
			<-ctx.Done()
			return context.Cause(ctx)
		}), quorumlock.ErrLost)
		nodes.Kill(1, 2)
		want(t, refresh(within(t), catalogue, load), quorumlock.ErrNoQuorum)
	})
}

func testCrawl(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := nodetest.Start(t, 3)
		hosts := nodes.Client().Semaphore("hosts", 3)
		two, err := nodes.NewClient().Semaphore("hosts", 3).LockN(t.Context(), 2)
		must(t, err)
		must(t, crawl(t.Context(), hosts, 1))
		want(t, crawl(t.Context(), hosts, 2), quorumlock.ErrHeld)
		must(t, two.Unlock(t.Context()))
		must(t, crawl(t.Context(), hosts, 3)) // and it gave the first one back
	})
}

func testMerge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := nodetest.Start(t, 3)
		shards, others := nodes.Client().Latch("shards", 2), nodes.NewClient().Latch("shards", 2)
		must(t, others.Done(t.Context(), "shard-1"))
		want(t, merge(within(t), shards), context.DeadlineExceeded) // one shard is missing
		done := make(chan error, 1)
		go func() { done <- merge(t.Context(), shards) }()
		must(t, others.Done(t.Context(), "shard-2"))
		must(t, <-done)
	})
}

func testLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := nodetest.Start(t, 3)
		e, other := election.New(nodes.Client().Mutex("leader"), "here"), nodes.NewClient()
		ends := make(chan error, 2) // the ends of its terms
		work := func(ctx context.Context) error {
			<-ctx.Done()
			ends <- context.Cause(ctx)
			return nil
		}
		term, err := election.New(other.Mutex("leader"), "elsewhere").Campaign(t.Context())
		must(t, err)
		want(t, lead(within(t), e, work), context.DeadlineExceeded) // somebody else leads
		must(t, term.Resign(t.Context()))

		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- lead(ctx, e, work) }()
		time.Sleep(time.Minute) // takes no time in a bubble
		must(t, other.ForceUnlock(ctx, "leader"))
		want(t, <-ends, quorumlock.ErrLost)
		stop()
		want(t, <-done, context.Canceled)
	})
}

func testResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := nodetest.Start(t, 3)
		lease, err := nodes.NewClient().Mutex("job").Lock(t.Context())
		must(t, err)
		text, err := lease.Detach(t.Context(), time.Minute)
		must(t, err)
		nodes.Freeze(1, 2)
		want(t, resume(t.Context(), nodes.Client(), text), quorumlock.ErrNoQuorum)
		nodes.Thaw()
		must(t, resume(t.Context(), nodes.Client(), text))
		want(t, resume(t.Context(), nodes.Client(), text), quorumlock.ErrLost) // delivered twice
		next, err := nodes.NewClient().Mutex("job").TryLock(t.Context())       // the first delivery unlocked it
		must(t, err)
		must(t, next.Unlock(t.Context()))
	})
}

// Locks of the other kinds are those of a client on nodes inside the test. Another client has a
// lock before the code under test has, takes it away, or does a part of the work; broken nodes do
// the rest.
func Example_kinds() {
	// In a file of tests, name them TestRefresh and so on: go test finds them.
	var _, _, _, _, _ func(t *testing.T) = testRefresh, testCrawl, testMerge, testLead, testResume
}
