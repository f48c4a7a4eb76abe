//go:build !race

package quorum_test

import (
	"testing"

	"github.com/quorumlock/quorumlock/internal/sabotage"
)

var copyBugs = []sabotage.Variant{
	sabotage.NewVariant("copies of a process have the same owners", "internal/quorum/registry.go", "if c.jitter != nil {", "if true {", "TestCopies"),
	sabotage.NewVariant("the hold of a copy counts as one that has ended", "internal/quorum/registry.go", "return over && (o == c.place || slices.Contains(c.recent, n))", "return over", "TestCopies"),
	sabotage.NewVariant("what a copy has is given back", "internal/core/attempt.go", "case r.Again && !c.restored:", "case false:", "TestNothingIsGivenBack"),
}

func TestBugsWithCopiesAreCaught(t *testing.T) { sabotage.AreNoticed(t, "internal/quorum", copyBugs) }
