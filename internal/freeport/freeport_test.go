package freeport_test

import (
	"testing"

	"github.com/quorumlock/quorumlock/internal/freeport"
)

// Servers that do not listen yet do not get the same port: of 500 draws from 12,000 ports, ten are drawn twice.
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
