package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/internal/wire"
)

// version is the Redis version of the servers' commands: on Valkey 9, this is 7.2.4. It is set when
// the servers start.
var version struct {
	text         string // from INFO
	major, minor int
}

// askVersion sets version.
func askVersion(ctx context.Context, s *redis.Client) error {
	info, err := s.InfoMap(ctx, "server").Result()
	if err != nil {
		return err
	}
	version.text = info["Server"]["redis_version"]
	_, err = fmt.Sscanf(version.text, "%d.%d", &version.major, &version.minor)
	return err
}

// since reports whether the servers have the features of that Redis version.
func since(major, minor int) bool {
	return version.major > major || version.major == major && version.minor >= minor
}

// needSince starts the servers, and skips the test if they lack its feature.
func needSince(t *testing.T, major, minor int, what string) {
	t.Helper()
	needServers(t)
	if !since(major, minor) {
		t.Skipf("Redis has %s since %d.%d, and the servers are as Redis %s", what, major, minor, version.text)
	}
}

func needUsers(t *testing.T) {
	t.Helper()
	needSince(t, 6, 0, "users")
}

func needShardChannels(t *testing.T) {
	t.Helper()
	needSince(t, 7, 0, "shard channels")
}

// permissions are the rules of a lock client.
var permissions = wire.ACL("", "")

// setInfo is the permission that Redis 7.0 does not know. Redis 6 takes any second word of a
// command.
const setInfo = "+client|setinfo"

func knowsSetInfo() bool { return since(7, 2) || !since(7, 0) }

// allow changes the rights of a user, and makes the user if there is none. It adapts the rules to
// the version of the servers, as docs/security.md explains.
func allow(t *testing.T, s *server, user string, rules ...string) {
	t.Helper()
	rules = slices.DeleteFunc(slices.Clone(rules), func(rule string) bool {
		ofChannels := strings.HasPrefix(rule, "&") || rule == "resetchannels"
		return ofChannels && !since(6, 2) || rule == setInfo && !knowsSetInfo() || rule == "-function" && !since(7, 0)
	})
	if !since(7, 0) && slices.Contains(rules, "+ping") {
		rules = append(rules, "+hello")
	}
	must(t, s.admin.ACLSetUser(t.Context(), user, rules...).Err())
}
