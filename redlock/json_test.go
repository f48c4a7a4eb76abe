package redlock_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/testkit"
	"github.com/quorumlock/quorumlock/node"
	"github.com/quorumlock/quorumlock/redlock"
)

// docs/tool.md documents these names, which programs read.
func TestJSONHasStableNamesAndSeconds(t *testing.T) {
	failed := &quorumlock.NodeError{Node: "b", Err: errors.New("i/o timeout")}
	const ttl = 1500 * time.Millisecond
	state := quorumlock.State{
		Owner: "web~x:1", Data: "job", HoldCount: 2, TTL: ttl, Token: 7, Waiting: 3, Permits: 4,
		Queue:   []quorumlock.Waiter{{Owner: "y:2", Since: time.Date(2030, 1, 2, 3, 4, 5, 600e6, time.UTC), Callers: 2, Reader: true}},
		Readers: []quorumlock.Reader{{Owner: "z:3", TTL: ttl}},
		Slots:   []quorumlock.Slot{{Number: 1, Owner: "z:4", TTL: ttl, Token: 8}},
	}
	status := node.Status{
		Version: "8.0.0", Role: "master", Shard: true, RunID: "r", Uptime: time.Minute, AppendFsync: "always", Save: "off", NoFsyncOnRewrite: true,
		Replicas: 1, MovingSlots: 2, MaxMemory: 3, Eviction: "noeviction", Clients: []string{"c"}, RoundTrip: 400 * time.Microsecond, ClockOffset: -ttl,
		Untold: []error{errors.New("NOPERM")},
	}
	const inState = `"owner":"web~x:1","data":"job","hold_count":2,"token":7,"waiting":3,` +
		`"queue":[{"owner":"y:2","since":"2030-01-02T03:04:05.6Z","callers":2,"reader":true}],` +
		`"readers":[{"owner":"z:3","ttl_seconds":1.5}],"permits":4,"slots":[{"number":1,"owner":"z:4","token":8,"ttl_seconds":1.5}],"ttl_seconds":1.5`
	for _, tt := range []struct {
		value any
		want  string
	}{
		{redlock.Inspection{State: state, Nodes: []redlock.NodeState{{Node: "a"}, {Node: "b", Err: failed}}},
			`{"state":{` + inState + `},"nodes":[{"node":"a","state":{"token":0,"waiting":0,"ttl_seconds":0}},` +
				`{"node":"b","state":{"token":0,"waiting":0,"ttl_seconds":0},"error":"quorumlock: node b: i/o timeout"}]}`},
		{redlock.Report{Quorum: 2, Findings: []redlock.Finding{{redlock.FindingForgets, redlock.SeverityWarning, "a", "forgets", "fix it"}},
			Nodes: []redlock.NodeReport{{Node: "a", Status: status, Refusal: failed, Deaf: failed}, {Node: "b", Err: failed}}},
			`{"quorum":2,"nodes":[{"node":"a","status":{"version":"8.0.0","role":"master","shard":true,"run_id":"r","append_fsync":"always","save":"off",` +
				`"no_fsync_on_rewrite":true,"replicas":1,"moving_slots":2,"max_memory":3,"eviction":"noeviction","uptime_seconds":60,"round_trip_seconds":0.0004,` +
				`"clock_offset_seconds":-1.5,"untold":["NOPERM"]},"refusal":"quorumlock: node b: i/o timeout","deaf":"quorumlock: node b: i/o timeout"},` +
				`{"node":"b","error":"quorumlock: node b: i/o timeout"}],` +
				`"findings":[{"kind":"forgets","severity":"warning","node":"a","problem":"forgets","fix":"fix it"}]}`},
	} {
		got, err := json.Marshal(tt.value)
		testkit.Must(t, err, "Marshal of %T", tt.value)
		testkit.Equal(t, string(got), tt.want, "JSON of %T", tt.value)
	}
}
