//go:build !race

package simulation

import (
	"testing"

	"github.com/quorumlock/quorumlock/proof/mutation"
)

// Whoever holds a mutex takes only mutexes that come after it in the order of package lockorder.
func TestMutexesAreTakenInOrder(t *testing.T) {
	mutation.TakesMutexesInOrder(t, "proof/simulation", 40)
}
