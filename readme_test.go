package quorumlock_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorumlock/quorumlock/internal/testkit"
)

// importer is a program with the first code of README.md, and with a module of contrib.
const importer = `package main

import (
	"context"
	"database/sql"

	"github.com/quorumlock/quorumlock"
	_ "github.com/quorumlock/quorumlock/contrib/cron"
	"github.com/quorumlock/quorumlock/fence"
	"github.com/quorumlock/quorumlock/redlock"
)

func main() { _ = work(context.Background(), new(sql.DB)) }

func pay(context.Context, *sql.Tx) error { return nil }

func work(ctx context.Context, db *sql.DB) error {
`

// A new user reads code in the first ten lines. It builds in a module of the user's own, with the
// lines of README.md for a checkout.
func TestDocsReadmeWorksForAnImporter(t *testing.T) {
	readme := readDoc(t, "README.md")
	before, rest, _ := strings.Cut(readme, "```go\n")
	code, _, _ := strings.Cut(rest, "```")
	if n := strings.Count(before, "\n"); n > 9 {
		t.Errorf("the first code of README.md begins in line %d", n+1)
	}
	root, err := os.Getwd()
	testkit.Must(t, err, "Getwd")
	dir := t.TempDir()
	testkit.Must(t, os.Symlink(root, filepath.Join(dir, "quorumlock")), "Symlink")
	app := filepath.Join(dir, "app")
	testkit.Must(t, os.Mkdir(app, 0o755), "Mkdir")
	testkit.Must(t, os.WriteFile(filepath.Join(app, "main.go"), []byte(importer+code+"return err\n}\n"), 0o644), "WriteFile")
	steps := []string{"go mod init example.com/app"}
	for line := range strings.SplitSeq(readme, "\n") {
		if strings.HasPrefix(line, "go mod ") {
			steps = append(steps, line)
		}
	}
	if len(steps) < 4 {
		t.Fatalf("README.md has too few lines for a checkout: %q", steps)
	}
	for _, step := range append(steps, "go vet .") {
		words := strings.Fields(step)
		cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
		cmd.Dir = app
		cmd.Env = append(cmd.Environ(), "GOWORK=off", "GOFLAGS=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", step, err, out)
		}
	}
}
