package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// buildAgainst builds this benchmark with the library of another checkout, and returns the path of
// the program. The checkout does not change.
func buildAgainst(ctx context.Context, dir string) (program string, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	temp, err := os.MkdirTemp("", "quorumlock-against-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp) //nolint:errcheck // a temporary directory
	mod := filepath.Join(temp, "go.mod")
	for from, to := range map[string]string{"go.mod": mod, "go.sum": filepath.Join(temp, "go.sum")} {
		text, err := os.ReadFile(from)
		if err != nil {
			return "", fmt.Errorf("-against: run this in the folder benchmarks: %w", err)
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			return "", err
		}
	}
	out, err := os.CreateTemp("", "quorumlock-bench-against-")
	if err != nil {
		return "", err
	}
	if err := out.Close(); err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"mod", "edit", "-replace=github.com/quorumlock/quorumlock=" + dir, mod},
		{"build", "-mod=mod", "-modfile=" + mod, "-o", out.Name(), "."},
	} {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Env = append(os.Environ(), "GOWORK=off")
		if text, err := cmd.CombinedOutput(); err != nil {
			_ = os.Remove(out.Name())
			return "", fmt.Errorf("-against: %w: %s", err, text)
		}
	}
	return out.Name(), nil
}

// against is what the other checkout's entry has behind its name.
const against = " (against)"

// ratios adds this checkout's figures over the other's: the median of the ratios within the rounds,
// and the middle half of them.
func (c *contest) ratios(t *table) {
	for _, e := range c.entries {
		for _, m := range c.columns {
			p := promise{entry: strings.TrimSuffix(e.name, against), metric: m, over: e.name}
			if j := p.judge(c.rounds); p.entry != p.over && j.verdict != notMeasured {
				t.add(string(c.store), c.scene, fmt.Sprintf("%s: %s", p.entry, m), fmt.Sprintf("%.3g", j.middle), fmt.Sprintf("%.3g to %.3g", j.low, j.high))
			}
		}
	}
}

// addAgainst adds, for every entry of quorumlock, the same with the other program.
func (c *contest) addAgainst(program string) {
	for _, e := range c.entries {
		isOurs := e.job.Design == ours || slices.ContainsFunc(kinds, func(d design) bool { return d.name == e.job.Design })
		if isOurs && e.missing == nil {
			e.name += against
			e.program = program
			c.entries = append(c.entries, e)
		}
	}
}
