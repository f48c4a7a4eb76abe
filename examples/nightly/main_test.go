package main

import (
	"github.com/quorumlock/quorumlock/examples/internal/try"
)

func Example() {
	try.Main(main)
	// Output:
	// the nightly job
	// ran here: true
}
