package embedded_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/testkit"
)

func TestTheExpiryOfALockIsLoggedBeforeItsReply(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		servers, nodes := testkit.Nodes(t, 1)
		var log strings.Builder
		servers[0].LogExpiry(&log)
		lease := testkit.Lock(t, nodes[0].Mutex("a lock"))
		want := fmt.Sprintf("%d %q\n", time.Now().Add(servers[0].Redis.TTL("a lock")).UnixMilli(), "a lock")
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, log.String())
		}
		testkit.Unlock(t, lease)
	})
}
