package coretier

import (
	"testing"
	"time"

	"github.com/quorumlock/quorumlock/internal/sabotage"
)

// Whichever statement of the core is left out, some schedule goes wrong, or costs more, or a test of package core fails. A plain run
// only compares the lists with the code.
func TestMutationsAreNoticed(t *testing.T) {
	m := &sabotage.Mutations{
		Package: "internal/coretier", Of: "internal/core", Except: "slots.go",
		Seeds: 5000, Rare: 60000, Unfinished: 6 * time.Second,
		Unnoticed: unnoticed, Tested: tested, Table: "docs/proof.md",
	}
	m.AreNoticed(t)
}
