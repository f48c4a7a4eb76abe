package embedded_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/internal/transport"
)

// Messages are lost on one path, while others hear them, and the publisher sees no difference.
func TestMessagesAreLostOnOnePath(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		servers, _ := testkit.Nodes(t, 1)
		var heard [2][]string
		paths, nodes := testkit.Paths(t, append(servers, servers...))
		for i, n := range nodes {
			stop := transport.Of(n).Listen("news", func(message string) { heard[i] = append(heard[i], message) })
			defer stop()
		}
		synctest.Wait()
		for i, lose := range []bool{false, true, false} {
			paths[0].LoseMessages(lose)
			if n := servers[0].Redis.Publish("news", string(rune('a'+i))); n != 2 {
				t.Errorf("%d subscribers, want 2", n)
			}
			synctest.Wait()
		}
		if !slices.Equal(heard[0], []string{"", "a", "c"}) || !slices.Equal(heard[1], []string{"", "a", "b", "c"}) {
			t.Errorf("heard %q", heard)
		}
	})
}
