package main

import (
	"testing"

	"github.com/quorumlock/quorumlock/examples/internal/try"
)

func TestShort(t *testing.T) { try.Short(t) }

func Example() {
	try.Main(main)
	// Output: 21
}
