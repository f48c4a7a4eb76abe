package mutation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// root is the root of the repository. Tests run in the folder of their package.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.work above the folder of the test")
		}
		dir = up
	}
}

// build builds the tests of a package with some files of the module replaced, or added. Files and
// package are named relative to the root of the repository.
func build(t testing.TB, pkg string, files map[string]string) (bin string, err error) {
	t.Helper()
	dir, root := t.TempDir(), root(t)
	replace := make(map[string]string)
	for name, text := range files {
		changed := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, name)] = changed
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	bin = filepath.Join(dir, "simulation.test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-gcflags=github.com/quorumlock/quorumlock/...=-e", "-overlay", file, "-o", bin, "./"+pkg)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return bin, nil
}

// finding is the first failure of a simulation.
type finding struct {
	by   string // an invariant, "hangs" or "panic"; empty for nothing
	seed int
	text string
}

var firstFailure = regexp.MustCompile(`seed (\d+): ([^:\n]+): (.*)|seed (\d+) (hangs)|(panic): (.*)`)

// run runs the seeds of a simulation until one fails.
func run(t testing.TB, bin, pkg string, from, seeds int, limit time.Duration, env ...string) finding {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, "-test.run=^TestSeeds$", "-test.timeout=0", "-shrink=false", fmt.Sprintf("-from=%d", from), fmt.Sprintf("-seeds=%d", seeds))
	cmd.Dir, cmd.Env = filepath.Join(root(t), pkg), append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return finding{}
	case t.Context().Err() != nil:
		t.Fatal(err)
	case ctx.Err() != nil:
		return finding{by: "hangs", seed: -1}
	}
	if _, ok := errors.AsType[*exec.ExitError](err); !ok {
		t.Fatal(err)
	}
	m := firstFailure.FindStringSubmatch(string(out))
	if m == nil {
		t.Fatalf("no seed failed, but the run did:\n%s", out)
	}
	seed, err := strconv.Atoi(m[1] + m[4])
	if err != nil {
		seed = -1
	}
	return finding{by: m[2] + m[5] + m[6], seed: seed, text: m[3] + m[7]}
}
