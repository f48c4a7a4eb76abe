package integration

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// version is the version of Redis whose commands the servers have: 7.2.4 also on Valkey 9. It is set with the servers.
var version struct {
	text         string // as INFO has it
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

// since reports whether the servers have what Redis has since that version.
func since(major, minor int) bool {
	return version.major > major || version.major == major && version.minor >= minor
}

// needSince starts the servers, and skips a test of what they lack.
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

// permissions are all that the user of a lock client needs, as docs/security.md has them.
var permissions = func() []string {
	page, err := os.ReadFile("../docs/security.md")
	if err != nil {
		panic(err)
	}
	line := regexp.MustCompile(`(?m)^resetchannels ~.* \+ping$`).Find(page)
	if line == nil {
		panic("docs/security.md has no list of permissions")
	}
	return strings.Fields(string(line))
}()

// setInfo is the permission that Redis 7.0 does not know. Redis 6 takes any second word of a command.
const setInfo = "+client|setinfo"

func knowsSetInfo() bool { return since(7, 2) || !since(7, 0) }

// allow changes the rights of a user, and makes the user if there is none. The rules are spelled as docs/security.md says for the
// version of the servers.
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
