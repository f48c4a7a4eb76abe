package client

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/quorumlock/quorumlock"
)

// A LockN ends its requests for slots when it loses one of them. The caller must not see that: its
// own wait may end at the same time, or not.
func TestALockNHidesItsOwnCancellation(t *testing.T) {
	live := context.Background()
	late, stop := context.WithTimeout(live, 0)
	defer stop()
	ended, cancel := context.WithCancel(live)
	cancel()
	own := fmt.Errorf("a slot: %w", context.Canceled)
	for _, tt := range []struct {
		what      string
		waiting   context.Context
		err, want error
	}{
		{"it tries again", live, own, nil},
		{"its time is over, too", late, own, context.DeadlineExceeded},
		{"its caller has ended it", ended, own, context.Canceled},
		{"it has another reason", late, quorumlock.ErrClosed, quorumlock.ErrClosed},
	} {
		if got := ownCancel(tt.waiting, tt.err); !errors.Is(got, tt.want) || got != nil && tt.want == nil {
			t.Errorf("%s: %v, want %v", tt.what, got, tt.want)
		}
	}
}
