package main

import (
	"strings"
	"testing"
)

// A 0 on the command line is a value like others. It is not taken as a flag that was left out.
func TestZeroIsNotALeftOutFlag(t *testing.T) {
	nobody := []string{"--nodes", "redis://127.0.0.1:1"} // nothing listens there
	for _, test := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"run", "a", "--slots", "0"}, exitRunFailed, "--slots 0: use 1 to 1000"},
		{[]string{"run", "a", "--slots", "-1"}, exitRunFailed, "--slots -1: use 1 to 1000"},
		{[]string{"run", "a", "--slots", "1001"}, exitRunFailed, "--slots 1001: use 1 to 1000"},
		{[]string{"run", "a", "--slots", "0", "--read"}, exitRunFailed, "--slots 0"},
		{[]string{"run", "a", "--grace", "-1s"}, exitRunFailed, "--grace -1s is negative"},
		{[]string{"run", "a", "--wait", "0s"}, exitNoQuorum, "no quorum"},
		{[]string{"run", "a", "--wait", "-1s"}, exitNoQuorum, "no quorum"}, // a script's budget of time is used up
		{[]string{"run", "a", "--wait", "0s", "--try"}, exitNoQuorum, "no quorum"},
		{[]string{"list", "--quorum", "0"}, exitUsage, "WithQuorum(0)"},
		{[]string{"list", "--restart-guard", "0s"}, exitUsage, "WithRestartGuard(0s)"},
		{[]string{"list", "--node-timeout", "0s"}, exitUsage, "--node-timeout 0s: use a positive duration"},
		{[]string{"top", "-n", "0"}, exitUsage, "-n 0: use a positive number"},
	} {
		t.Run(strings.Join(test.args, " "), func(t *testing.T) {
			args := append(test.args, nobody...)
			if args[0] == "run" {
				args = append(args, "--", "true")
			}
			var stdout, stderr strings.Builder
			if status := main1(t.Context(), args, &stdout, &stderr); status != test.status {
				t.Errorf("status %d, want %d", status, test.status)
			}
			if !strings.Contains(stderr.String(), test.want) {
				t.Errorf("%s: want %q", stderr.String(), test.want)
			}
		})
	}
}
