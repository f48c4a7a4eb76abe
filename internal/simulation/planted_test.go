//go:build !race

package simulation

import (
	"testing"

	"github.com/quorumlock/quorumlock/internal/sabotage"
)

// Every planted bug is caught, so the simulation would notice a bug like it.
func TestPlantedBugsAreCaught(t *testing.T) {
	p := &sabotage.Planted{Package: "internal/simulation", Bugs: bugs, Soon: 400}
	p.AreCaught(t, *seeds)
}
