package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/examples/internal/try"
	"github.com/quorumlock/quorumlock/internal/testkit"
)

func TestMain(m *testing.M) { try.Main(m, main) }

func TestNoTwoFilmsHaveALicence(t *testing.T) {
	fleet := try.New(t)
	one, two, three := fleet.Start("", "1"), fleet.Start("", "2"), fleet.Start("", "3")
	used := make(map[int]bool)
	for range 30 { // three processes encode five films
		line := fleet.Line()
		what, list, _ := strings.Cut(line, " with ")
		var numbers []int
		testkit.Must(t, json.Unmarshal([]byte(strings.ReplaceAll(list, " ", ",")), &numbers), "%q", line)
		for _, n := range numbers {
			if begins := what == "begins"; used[n] == begins || n < 0 || n > 3 {
				t.Fatalf("%q, and licence %d in use: %v", line, n, used[n])
			}
			used[n] = !used[n]
		}
	}
	fleet.Wait(one, two, three)
}
