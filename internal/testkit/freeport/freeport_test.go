package freeport_test

import (
	"testing"

	"github.com/quorumlock/quorumlock/internal/testkit/freeport"
)

// No two servers get the same port, even before they listen. Of 500 random draws from 12,000 ports,
// about ten would repeat.
func TestNoAddressIsGivenTwice(t *testing.T) {
	given := make(map[string]bool)
	for range 500 {
		addr, err := freeport.Addr()
		if err != nil {
			t.Fatal(err)
		}
		if given[addr] {
			t.Fatalf("%s is given twice", addr)
		}
		given[addr] = true
	}
}
