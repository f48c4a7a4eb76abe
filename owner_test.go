package quorumlock_test

import (
	"regexp"
	"testing"

	"github.com/quorumlock/quorumlock"
)

func TestEveryIDIsARandomUUIDOfItsOwn(t *testing.T) {
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := make(map[string]bool)
	for range 2000 {
		for _, id := range []string{quorumlock.NewID(), string(quorumlock.NewOwner())} {
			if !uuid.MatchString(id) {
				t.Fatalf("%q is no UUID of version 4", id)
			}
			if seen[id] {
				t.Fatalf("%q was given twice", id)
			}
			seen[id] = true
		}
	}
}

func TestNobodyHoldsAStateWithoutOwner(t *testing.T) {
	if (quorumlock.State{Token: 7}).Held() {
		t.Error("a state without an owner is held")
	}
	if !(quorumlock.State{Owner: "x"}).Held() {
		t.Error("a state with an owner is not held")
	}
}
