package quorumvet_test

import (
	"fmt"

	quorumvet "github.com/quorumlock/quorumlock/contrib/vet"
)

// A program of your own, such as a multichecker, takes the analyzer along with others.
func Example() {
	fmt.Println(quorumvet.Analyzer.Name)
	// Output: quorumvet
}
