package transport

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorumlock/quorumlock"
)

// The first connection needs a witness, or another connection, that leads to the same server. After
// that, a connection to another server needs both.
func TestANewServerIsConfirmed(t *testing.T) {
	t.Parallel()
	const doubt, fault = "doubt", "fault"
	type connection struct{ server, witness, want string }
	for name, connections := range map[string][]connection{
		"a witness":                    {{"a", "a", ""}},
		"two servers":                  {{"a", "b", fault}},
		"none":                         {{"a", "", doubt}, {"a", "", ""}, {"a", "", ""}},
		"a known server":               {{"a", "a", ""}, {"a", "", ""}},
		"a failover":                   {{"a", "a", ""}, {"b", "b", doubt}, {"b", "b", ""}, {"b", "b", ""}},
		"a failover without a witness": {{"a", "a", ""}, {"b", "", doubt}, {"b", "", ""}},
		"two failovers":                {{"a", "a", ""}, {"b", "b", doubt}, {"b", "b", ""}, {"c", "c", doubt}, {"c", "c", ""}},
		"a failover to two servers":    {{"a", "a", ""}, {"b", "c", fault}},
		"connections that alternate":   {{"a", "a", ""}, {"b", "", doubt}, {"a", "", fault}},
		"then with a witness":          {{"a", "a", ""}, {"b", "b", doubt}, {"a", "a", fault}},
		"then as the witness":          {{"a", "a", ""}, {"b", "b", doubt}, {"b", "a", fault}},
		"an unknown server in between": {{"a", "a", ""}, {"b", "", doubt}, {"", "", ""}, {"a", "", ""}},
		"a doubt that is long ago":     {{"a", "a", ""}, {"b", "", doubt}, {"much later", "", ""}, {"a", "a", ""}},
		"a second failover":            {{"a", "a", ""}, {"b", "b", doubt}, {"later", "", ""}, {"c", "c", doubt}, {"c", "c", ""}},
		"a slow confirmation":          {{"a", "a", ""}, {"b", "", doubt}, {"later", "", ""}, {"b", "", ""}},
		"unknown servers":              {{"", "", ""}, {"", "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &servers{onMove: func() {}}
				for i, c := range connections {
					if d := map[string]time.Duration{"later": 2 * proof, "much later": memory}[c.server]; d > 0 {
						time.Sleep(d)
						continue
					}
					_, err := s.admit(0, nil, c.server, c.witness)
					got := ""
					switch {
					case errors.Is(err, errDoubtful):
						got = doubt
					case errors.Is(err, quorumlock.ErrSeveralServers):
						got = fault
					}
					if got != c.want {
						t.Errorf("connection %d to %q, witness %q: %q, want %q", i+1, c.server, c.witness, got, c.want)
					}
				}
			})
		})
	}
}
