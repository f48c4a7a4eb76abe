package quorumvet_test

import (
	"fmt"

	quorumvet "github.com/quorumlock/quorumlock/contrib/vet"
)

// Your own program, such as a multichecker, can run the analyzer along with others.
func Example() {
	fmt.Println(quorumvet.Analyzer.Name)
	// Output: quorumvet
}
