package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// A tenant with only its own rights uses a latch. It is counted once, woken by a
// message, kept by the nodes, and never mistaken for a mutex.
func TestALatchOfATenantOpensOnce(t *testing.T) {
	needUsers(t)
	servers := five[:3]
	o := tenant{"latches", "pass"}
	o.admit(t, servers, lockCommands()...)
	const key = "latches:x"
	t.Cleanup(func() {
		for _, s := range servers {
			must(t, s.admin.Del(context.Background(), key).Err())
			must(t, s.admin.Del(context.Background(), wire.LatchKey(key)).Err())
			must(t, s.admin.ACLDelUser(context.Background(), o.name).Err())
		}
	})
	for _, s := range servers {
		must(t, s.admin.ACLLogReset(t.Context()).Err())
	}
	a, b := o.client(t, servers, "latches:"), o.client(t, servers, "latches:")
	l := a.Latch("x", 3)
	for _, id := range []string{"1", "2", "1"} {
		must(t, l.Done(t.Context(), id))
	}
	if n, err := b.Latch("x", 3).Count(t.Context()); n != 2 || err != nil {
		t.Errorf("Count: %d, %v, want 2", n, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got := make(chan error, 1)
	go func() { got <- b.Latch("x", 3).Wait(ctx) }()
	for _, s := range servers {
		eventually(t, patience, "a waiter at "+s.addr, func() bool {
			heard, err := s.admin.PubSubNumSub(context.Background(), wire.LatchKey(key)).Result()
			must(t, err)
			return heard[wire.LatchKey(key)] == 1
		})
	}
	if err := a.Latch("x", 5).Done(ctx, "3"); !errors.Is(err, quorumlock.ErrMismatch) {
		t.Errorf("Done with another n: %v, want ErrMismatch", err)
	}
	for name, call := range map[string]func() error{
		"Lock":        func() error { _, err := b.Mutex("x").Lock(ctx); return err },
		"ForceUnlock": func() error { return b.ForceUnlock(ctx, "x") },
		"Inspect":     func() error { _, err := b.Inspect(ctx, "x"); return err },
	} {
		if err := call(); !errors.Is(err, quorumlock.ErrWrongKind) {
			t.Errorf("%s of a latch: %v, want ErrWrongKind", name, err)
		}
	}
	must(t, l.Done(ctx, "3"))
	must(t, <-got)
	for _, s := range servers {
		kept, err := s.admin.PTTL(t.Context(), key).Result()
		must(t, err)
		if kept < 23*time.Hour {
			t.Errorf("%s keeps the latch for %v, want a day", s.addr, kept)
		}
	}
	if n, err := b.Latch("x", 3).Count(t.Context()); n != 3 || err != nil {
		t.Errorf("Count: %d, %v, want 3", n, err)
	}
	if denied := deniedTo(t, servers, o.name); len(denied) > 0 {
		t.Errorf("the tenant was denied what it needs: %q", denied)
	}
}
