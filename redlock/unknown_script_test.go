package redlock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/locktest/embedded"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// An acquire and the release behind it go to a node in one pipeline. The node knows only the script of the release, and runs it.
// The acquire must not run after that.
func TestAnAcquireOfAnUnknownScriptDoesNotRunAfterItsRelease(t *testing.T) {
	for _, unlocks := range []bool{false, true} {
		name := "the caller goes"
		if unlocks {
			name = "the caller unlocks"
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, servers := locktest.Client(t, 3)
				warm(t, c)
				unknowing := servers
				if unlocks { // the others grant
					unknowing = servers[2:]
				}
				locktest.Each(unknowing, func(s *embedded.Server) {
					s.FlushScripts()
					n, err := s.Node()
					if err != nil {
						t.Fatal(err)
					}
					defer n.Close() //nolint:errcheck // nothing is on its way
					if err := n.Client().ScriptLoad(t.Context(), wire.Release("", "", 0).Script.Source).Err(); err != nil {
						t.Fatal(err)
					}
					s.Delay(10 * time.Millisecond)
				})
				go func() { _, _ = c.Mutex("y").Inspect(t.Context()) }() // what is asked meanwhile goes in one pipeline
				synctest.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Millisecond, cancel)
				released, acquired := servers[2].Ran("release"), servers[2].Ran("acquire")
				lease, err := c.Mutex("x").Lock(ctx)
				switch {
				case unlocks && err == nil:
					locktest.MustUnlock(t, lease)
				case unlocks || !errors.Is(err, context.Canceled):
					t.Errorf("Lock: %v", err)
				}
				time.Sleep(time.Second)
				if servers[2].Ran("release") == released {
					t.Error("control: the release has not run")
				}
				if n := servers[2].Ran("acquire") - acquired; n > 0 {
					t.Errorf("the acquire ran %d times", n)
				}
				locktest.NoLocks(t, servers)
				locktest.Each(servers, func(s *embedded.Server) { s.Delay(0) })
				locktest.Nothing(t, servers)
			})
		})
	}
}
