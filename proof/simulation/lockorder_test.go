//go:build !race

package simulation

import (
	"testing"

	"github.com/quorumlock/quorumlock/proof/mutation"
)

// A goroutine that holds a mutex locks only later ones in the order of package lockorder.
func TestMutexesAreTakenInOrder(t *testing.T) {
	mutation.TakesMutexesInOrder(t, "proof/simulation", 40)
}
