//go:build !race

package redlock_test

import (
	"testing"

	"github.com/quorumlock/quorumlock/internal/sabotage"
)

var strangerBugs = []sabotage.Variant{
	sabotage.NewVariant("a window is not kept from the queue", "scripts/open.lua", "  join(ARGV[4],", "  --join(ARGV[4],", "TestJavaClientsThatDoNotListen"),
	sabotage.NewVariant("a client never leaves the lock to those it has not met", "internal/quorum/strangers.go", "t.waits <= firstTrial ||", "true ||", "TestJavaClientsThatDoNotListen"),
	sabotage.NewVariant("the holds of this side are not counted", "internal/quorum/strangers.go", "if !wire.GivesUp(message) {", "if false {", "TestJavaAndGoShareALock/6_and_6$"),
	sabotage.NewVariant("the second in the queue ignores a release", "internal/quorum/strangers.go", "\tif nearest <= 1 {", "\tif nearest > 0 {\n\t\treturn\n\t}\n\t{", "TestReleaseByRedissonIsNoticed"),
	sabotage.NewVariant("waiters do not listen to strangers", "internal/quorum/subscriptions.go", "if c.lock.client.strangers.some.Load() > 0 {", "if false {", "TestReleaseByRedissonIsNoticed|TestOnlyThoseWhoMeet"),
	sabotage.NewVariant("a part of a Java RedLock hides that it waits", "internal/quorum/strangers.go", "st.balance < known.balance)", "st.balance > known.balance)", "TestJavaAndGoShareALock/RedLock"),
	sabotage.NewVariant("the counter expires under Java's fenced lock", "scripts/open.lua", "redis.call('pexpire', KEYS[4], '315360000000')", "", "TestFencingTokensOutlive"),
}

func TestBugsWithStrangersAreCaught(t *testing.T) { sabotage.AreNoticed(t, "redlock", strangerBugs) }
