package quorumlock_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/locktest"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// A program for regulated users may allow approved primitives only: others panic. All that the
// library hashes happens here: scripts, a handoff with its proof, and a detached hold. (Most tests
// cannot run in that mode: its random numbers need a clock that moves, and that of a bubble stands
// still.)
func TestTheLibraryWorksWithApprovedPrimitivesOnly(t *testing.T) {
	const mode = "fips140=only"
	if !strings.Contains(os.Getenv("GODEBUG"), mode) {
		child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		child.Env = append(os.Environ(), "GODEBUG="+mode)
		if out, err := child.CombinedOutput(); err != nil {
			t.Errorf("%v\n%.2000s", err, out)
		}
		return
	}
	c, servers := locktest.Client(t, 3, quorumlock.WithNodeTimeout(time.Second))
	other, _ := locktest.Another(t, servers, quorumlock.WithNodeTimeout(time.Second))
	lease := locktest.MustLock(t, c.Mutex("x"))
	next := locktest.Go(func() error {
		l, err := other.Mutex("x").Lock(t.Context())
		if err != nil {
			return err
		}
		return l.Unlock(t.Context())
	})
	for waiting := 0; waiting == 0; {
		in, err := c.Mutex("x").Inspect(t.Context())
		locktest.Must(t, err, "Inspect")
		waiting = in.State.Waiting
	}
	locktest.OK(t, lease.Unlock(t.Context()), "Unlock")
	locktest.OK(t, <-next, "the next Lock")
	text, err := locktest.MustLock(t, c.Mutex("x")).Detach(t.Context(), time.Minute)
	locktest.Must(t, err, "Detach")
	attached, err := other.Attach(t.Context(), text)
	locktest.Must(t, err, "Attach")
	locktest.OK(t, attached.Unlock(t.Context()), "Unlock")
	locktest.Equal(t, len(wire.Scripts()[0].SHA()), 40, "digits of the name of a script")
}
