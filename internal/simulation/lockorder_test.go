//go:build !race

package simulation

import (
	"testing"

	"github.com/quorumlock/quorumlock/internal/sabotage"
)

// Whoever holds a mutex takes only mutexes that come after it in the order of package lockorder.
func TestMutexesAreTakenInOrder(t *testing.T) {
	sabotage.TakesMutexesInOrder(t, "internal/simulation", 40)
}
