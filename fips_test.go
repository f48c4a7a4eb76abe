package quorumlock_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
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
	c, servers := testkit.Client(t, 3, quorumlock.WithNodeTimeout(time.Second))
	other, _ := testkit.Another(t, servers, quorumlock.WithNodeTimeout(time.Second))
	lease := testkit.MustLock(t, c.Mutex("x"))
	next := testkit.Go(func() error {
		l, err := other.Mutex("x").Lock(t.Context())
		if err != nil {
			return err
		}
		return l.Unlock(t.Context())
	})
	for waiting := 0; waiting == 0; {
		in, err := c.Inspect(t.Context(), "x")
		testkit.Must(t, err, "Inspect")
		waiting = in.State.Waiting
	}
	testkit.OK(t, lease.Unlock(t.Context()), "Unlock")
	testkit.OK(t, <-next, "the next Lock")
	text, err := testkit.MustLock(t, c.Mutex("x")).Detach(t.Context(), time.Minute)
	testkit.Must(t, err, "Detach")
	attached, err := other.Attach(t.Context(), text)
	testkit.Must(t, err, "Attach")
	testkit.OK(t, attached.Unlock(t.Context()), "Unlock")
	testkit.Equal(t, len(wire.Scripts()[0].SHA()), 40, "digits of the name of a script")
}
