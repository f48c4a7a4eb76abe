package main

import (
	"strings"
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/testkit"
)

func TestTheAxisOfTheTimelineHasRoundSteps(t *testing.T) {
	for keep, want := range map[time.Duration]string{
		8 * time.Minute:  "now −2 min −4 min −6 min −8 min",
		10 * time.Minute: "now −2 min −4 min −6 min −8 min −10 min",
		90 * time.Second: "now −15 s −30 s −45 s −1 min −75 s −90 s",
		7 * time.Minute:  "now −2 min −4 min −6 min",
		time.Hour:        "now −10 min −20 min −30 min −40 min −50 min −60 min",
	} {
		var got []string
		for _, tick := range ticks(keep, 0) {
			got = append(got, tick.Label)
		}
		testkit.Equal(t, strings.Join(got, " "), want, "the marks of %v", keep)
	}
}
