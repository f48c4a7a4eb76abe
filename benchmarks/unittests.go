package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// runTests runs the unit tests of the library, which are built before, and takes the time.
func runTests(ctx context.Context) (answer, error) {
	dir, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/quorumlock/quorumlock").Output()
	if err != nil {
		return answer{}, err
	}
	test := func(args ...string) error {
		cmd := exec.CommandContext(ctx, "go", append([]string{"test"}, args...)...)
		cmd.Dir = strings.TrimSpace(string(dir))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go test: %w: %.2000s", err, out)
		}
		return nil
	}
	if err := test("-count=1", "-run=^$", "./..."); err != nil {
		return answer{}, err
	}
	start := time.Now()
	err = test("-count=1", "./...")
	return answer{Figures: figures{seconds: time.Since(start).Seconds()}}, err
}
