//go:build unix

package main

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/quorumlock/quorumlock/examples/internal/try"
	"github.com/quorumlock/quorumlock/internal/testkit"
)

func TestMain(m *testing.M) { try.Main(m, main) }

func TestOneOfThreeProcessesMakesTheReport(t *testing.T) {
	fleet := try.New(t)
	one, two, three := fleet.Start(""), fleet.Start(""), fleet.Start("")
	lines := []string{fleet.Line(), fleet.Line(), fleet.Line()}
	host, err := os.Hostname()
	testkit.Must(t, err, "Hostname")
	var ran []string // how the others name the process that has run the job
	for _, p := range []int{one.Process.Pid, two.Process.Pid, three.Process.Pid} {
		skipped := fmt.Sprintf("skipped: %s-%d has this hour", host, p)
		if slices.Sort(lines); slices.Equal(lines, []string{skipped, skipped, "the report"}) {
			ran = append(ran, skipped)
		}
	}
	if len(ran) != 1 {
		t.Fatalf("%q: want one report, and two that name its process", lines)
	}
	fleet.Stop(one, two, three)
	next := fleet.Start("") // a new version in the same hour
	if line := fleet.Line(); line != ran[0] {
		t.Errorf("after a restart: %q, want %q", line, ran[0])
	}
	fleet.Stop(next)
}
