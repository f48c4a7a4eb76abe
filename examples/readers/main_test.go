package main

import (
	"github.com/quorumlock/quorumlock/examples/internal/try"
)

func Example() {
	try.Main(main)
	// Output:
	// the price is 42
	// the price is 42
	// the price is 42
}
