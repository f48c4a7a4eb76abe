package main

import "testing"

// The node that has grown most counts, and the growth is that from its own size.
func TestTheNodeThatGrewMostCounts(t *testing.T) {
	were := []figures{{dataIdle: 9}, {dataIdle: 2}, {dataIdle: 5}}
	are := []figures{{dataIdle: 10}, {dataIdle: 5}, {dataIdle: 1}}
	if got := most(were, are, dataIdle); got != 3 {
		t.Errorf("the most is %v, want 3", got)
	}
}

// Callers of the part fresh never use a name twice, and share none.
func TestFreshNamesAreUsedOnce(t *testing.T) {
	seen := make(map[string]bool)
	for own := range 20 {
		c := caller{own: own, fresh: true}
		for i := range 200 {
			name := c.name()
			if seen[name] {
				t.Fatalf("%q again: name %d of caller %d", name, i, own)
			}
			seen[name] = true
		}
	}
	if name := (&caller{own: 3}).name(); name != "free:3" {
		t.Errorf("another caller's name is %q", name)
	}
}
