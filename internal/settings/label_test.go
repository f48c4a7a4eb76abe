package settings

import (
	"strings"
	"testing"
)

func TestLabelOfAHostHasOnlyWhatALabelMayHave(t *testing.T) {
	for _, tt := range []struct {
		host string
		pid  int
		want string
	}{
		{"web-1.eu_west", 42, "web-1.eu_west-42"},
		{"my host~é", 42, "my-host----42"},
		{"", 42, "unknown-42"},
		{strings.Repeat("h", 253), 4194304, strings.Repeat("h", 56) + "-4194304"},
	} {
		t.Run(tt.host[:min(len(tt.host), 20)], func(t *testing.T) {
			got := labelOf(tt.host, tt.pid)
			if got != tt.want || !IsLabel(got) {
				t.Errorf("got %q, want the label %q", got, tt.want)
			}
		})
	}
}
