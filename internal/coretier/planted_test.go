package coretier

import (
	"testing"

	"github.com/quorumlock/quorumlock/internal/sabotage"
)

// Every planted bug is caught, so the simulation would notice a bug like it.
func TestPlantedBugsAreCaught(t *testing.T) {
	p := &sabotage.Planted{Package: "internal/coretier", Bugs: bugs, Soon: 4000}
	p.AreCaught(t, *seeds)
}
