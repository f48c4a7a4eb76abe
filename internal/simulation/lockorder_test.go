//go:build !race

package simulation

import (
	"testing"

	"github.com/quorumlock/quorumlock/internal/sabotage"
)

// Nobody who has a mutex takes one that comes before it in the order of package lockorder.
func TestMutexesAreTakenInOrder(t *testing.T) {
	sabotage.TakesMutexesInOrder(t, "internal/simulation", 100)
}
