package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/quorumlock/quorumlock"
)

// outerOwners returns the owners of the runs around this one, the innermost first.
func outerOwners() []string {
	owner := os.Getenv(ownerVariable)
	if owner == "" {
		return nil
	}
	return append([]string{owner}, strings.Fields(os.Getenv(outerVariable))...)
}

// checkNested returns an error if a run around this one holds a lock that this one would wait for.
func (c *runCommand) checkNested(ctx context.Context, client *cluster) error {
	outer := outerOwners()
	if len(outer) == 0 || c.Slots != nil || !c.waits() { // another slot may be free
		return nil
	}
	for _, name := range c.Names {
		v, err := client.inspect(ctx, name)
		if err != nil {
			return nil // acquire reports the reason
		}
		if c.Read && v.State.Owner == "" { // readers share
			continue
		}
		if slices.ContainsFunc(v.owners(), func(o quorumlock.Owner) bool { return slices.Contains(outer, string(o)) }) {
			status := exitRunFailed
			if c.Wait != nil { // the wait would end without the lock
				status = c.HeldStatus
			}
			return &statusError{status, fmt.Errorf("run: %q is held by a quorumlock run that has started this one, so this one would wait for itself: run the command without quorumlock, or take another lock", c.Prefix+name)}
		}
	}
	return nil
}
