package election_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/election"
	"github.com/quorumlock/quorumlock/internal/testkit"
)

// docs/tool.md documents these names, which programs read.
func TestJSONOfALeaderHasStableNamesAndSeconds(t *testing.T) {
	got, err := json.Marshal(election.Leader{Owner: "web~x:1", Value: "10.0.0.1:80", Token: 7, Version: 2, Sure: true, Nodes: 3, Needed: 2, TTL: 1500 * time.Millisecond})
	testkit.Must(t, err, "Marshal")
	testkit.Equal(t, string(got), `{"owner":"web~x:1","value":"10.0.0.1:80","token":7,"version":2,"sure":true,"nodes":3,"needed":2,"ttl_seconds":1.5}`, "JSON")
}
