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
	sabotage.NewVariant("a MultiLock asks for its first member with the others", "internal/quorum/firstmember.go", "c.machine.Draw(1<<st.useless) > 0", "true", "TestJavaAndGoShareAMultiLock/6_and_1$"),
	sabotage.NewVariant("a member that was of no use alone is always tried", "internal/quorum/firstmember.go", "min(st.useless+1, mostUseless)", "0", "TestJavaAndGoShareAMultiLock/released_at_once"),
	sabotage.NewVariant("a member that Java has again counts as free", "internal/quorum/firstmember.go", "taken = append(taken, i)", "_ = i", "TestJavaAndGoShareAMultiLock/every_node"),
	sabotage.NewVariant("nobody makes the counter of a first member", "internal/quorum/firstmember.go", "!st.counts && c.machine.Draw(2) == 0", "false", "TestJavaAndGoShareAMultiLock/without_a_counter"),
	sabotage.NewVariant("the first member is given back before the last is free", "internal/core/machine.go", "m.grace = 0 // another", "_ = 0 // another", "TestJavaAndGoShareAMultiLock/five_members"),
	sabotage.NewVariant("the counter expires under Java's fenced lock", "scripts/open.lua", "redis.call('pexpire', KEYS[4], '315360000000')", "", "TestFencingTokensOutlive"),
}

func TestBugsWithStrangersAreCaught(t *testing.T) { sabotage.AreNoticed(t, "redlock", strangerBugs) }
