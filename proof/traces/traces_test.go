package traces

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the effects anew")

func TestTheScenariosPlayAsTheyAreWritten(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 12 {
		t.Fatalf("%d scenarios, want a dozen: %v", len(files), err)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got, err := play(string(want))
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("it plays otherwise. Look at the difference: go test ./proof/traces -update; git diff proof/traces\n%s", got)
			}
		})
	}
}

func TestABadScenarioIsRefused(t *testing.T) {
	for _, scenario := range []string{"", "nodes 0", "nodes x", "nodes 3\nrun A", "nodes 3\nA fly", "nodes 3\nA lock\nrun A n4", "nodes 3\nwait long", "nodes 3\nA"} {
		if _, err := play(scenario); err == nil {
			t.Errorf("%q plays", scenario)
		}
	}
}
