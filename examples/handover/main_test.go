package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/quorumlock/quorumlock/examples/internal/try"
)

func TestMain(m *testing.M) { try.Main(m, main) }

func TestAnOrderIsShippedOnceThoughDeliveredTwice(t *testing.T) {
	fleet := try.New(t)
	fleet.Wait(fleet.Start("", "order", "1042"))
	job := fleet.Line()
	if fleet.Start("", "order", "1042").Wait() == nil {
		t.Error("the order was locked again before it was shipped")
	}
	file := filepath.Join(t.TempDir(), "shipped.txt")
	fleet.Wait(fleet.Start(job, "ship", file), fleet.Start(job, "ship", file))
	lines := []string{fleet.Line(), fleet.Line()}
	if slices.Sort(lines); !slices.Equal(lines, []string{"1042 is shipped", "1042 was shipped before"}) {
		t.Errorf("two deliveries: %q", lines)
	}
	if shipped, err := os.ReadFile(file); err != nil || string(shipped) != "1042\n" {
		t.Errorf("shipped: %q, %v, want 1042 once", shipped, err)
	}
	fleet.Wait(fleet.Start("", "order", "1042")) // the lock is free again
}
