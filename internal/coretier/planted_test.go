package coretier

import (
	"testing"

	"github.com/quorumlock/quorumlock/internal/sabotage"
)

// Every one of the planted bugs is caught: so the simulation would notice the like of it.
func TestPlantedBugsAreCaught(t *testing.T) {
	p := &sabotage.Planted{Package: "internal/coretier", Bugs: bugs, Soon: 4000}
	p.AreCaught(t, *seeds)
}
