//go:build !race

package election_test

import (
	"testing"

	"github.com/quorumlock/quorumlock/internal/sabotage"
)

var bugs = []sabotage.Variant{
	sabotage.NewVariant("a leader is told late", "election/term.go", "context.WithCancelCause(context.WithValue(lease.Context(), termKey{}, &t.first))", "context.WithCancelCause(context.WithValue(context.WithoutCancel(ctx), termKey{}, &t.first))",
		"TestLeadershipEnds|TestHostile"),
	sabotage.NewVariant("a pause is not looked at", "election/term.go", "if t.ctx.Err() == nil && !time.Now().Before(t.lease.ValidUntil()) {", "if false {", "TestAPaused"),
	sabotage.NewVariant("released before the work has ended", "election/term.go", "limit = time.After(t.election.set.TTL)", "limit = time.After(0)", "TestTheLockIsReleased|TestHostile"),
	sabotage.NewVariant("the work is waited for without end", "election/term.go", "limit = time.After(t.election.set.TTL)", "", "TestALeadThat"),
	sabotage.NewVariant("Resign does not wait for the work", "election/term.go", "if !t.serves {\n\t\tt.finished()", "{\n\t\tt.finished()", "TestTheLockIsReleased|TestHostile"),
	sabotage.NewVariant("nobody tells the leader of a Shutdown", "election/term.go", "client.Stopping(), client.Closed()", "(chan struct{})(nil), client.Closed()", "TestShutdown"),
	sabotage.NewVariant("a former leader's value overwrites", "scripts/proclaim.lua", "elseif holds == 0 then\n  return 0\nend\nlocal was = redis.pcall('hmget', KEYS[2], 'owner', 'token', 'version')\n",
		"end\nlocal was = {}\n", "TestLeadershipEnds"),
	sabotage.NewVariant("the value outlives the hold", "scripts/leader.lua", "if owner == holder then", "if owner then", "TestAHolder|TestHostile|TestAValueOfAFormer"),
	sabotage.NewVariant("an earlier value overwrites a later one", "scripts/proclaim.lua", "or version < tonumber(ARGV[4]) then", "or version ~= tonumber(ARGV[4]) then", "TestALateProclaim"),
	sabotage.NewVariant("sure from one node less", "election/leader.go", "l.Nodes, l.Sure = len(ttls), lasting >= need", "l.Nodes, l.Sure = len(ttls), lasting >= need-1", "TestAMinority|TestHostile"),
	sabotage.NewVariant("sure of a dead leader", "election/leader.go", "return ttl > e.set.TTL-e.set.Drift.Validity(e.set.TTL, 0)", "return true", "TestADeadLeader"),
	sabotage.NewVariant("a twin counts twice", "election/leader.go", "|| wire.OfCell(owner, a.cell) != a.standing.Holder {", "{", "TestTwoAddresses"),
	sabotage.NewVariant("Observe misses a change that comes while it looks", "election/observe.go", "\t\tasked := time.Now()\n\t\tv, err := o.election.look(ctx)", "\t\tasked := time.Now()\n\t\tv, err := o.election.look(ctx)\n\t\tselect {\n\t\tcase <-o.changed:\n\t\tdefault:\n\t\t}", "TestObserve"),
	sabotage.NewVariant("Observe hears nothing", "election/observe.go", "case o.changed <- struct{}{}:", "case (chan struct{})(nil) <- struct{}{}:", "TestObserve"),
	sabotage.NewVariant("Observe ends with an outage", "election/observe.go", "if errors.Is(err, quorumlock.ErrClosed) {", "if err != nil && !errors.Is(err, ErrNoLeader) {", "TestObserve"),
	sabotage.NewVariant("a value that nodes have lost stays lost", "election/proclaim.go", "if p == wire.NotThere && !whole && err == nil {", "if false {", "TestAMinority"),
	sabotage.NewVariant("Campaign returns before the value is known", "election/proclaim.go", "\t\tif err == nil {\n\t\t\treturn nil\n\t\t}\n\t\tif over", "\t\tif err == nil || t.Err() == nil {\n\t\t\treturn nil\n\t\t}\n\t\tif over", "TestCampaignRidesOut"),
	sabotage.NewVariant("a node that refuses for good ends a campaign that others could still win", "election/errors.go", "return refused > cells-need", "return refused > 0", "TestCampaignRidesOutAnOutage"),
	sabotage.NewVariant("the value is left behind", "election/term.go", "\tt.withdraw()\n", "", "TestALeaderIsKnown"),
}

func TestPlantedBugsAreCaught(t *testing.T) { sabotage.AreNoticed(t, "election", bugs, "-seeds=12") }
