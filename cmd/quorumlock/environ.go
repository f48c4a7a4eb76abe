package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/quorumlock/quorumlock"
)

// The environment variables of the command of run.
const (
	nameVariable     = "QUORUMLOCK_NAME"
	tokenVariable    = "QUORUMLOCK_TOKEN"
	deadlineVariable = "QUORUMLOCK_DEADLINE"
	ownerVariable    = "QUORUMLOCK_OWNER"
	slotVariable     = "QUORUMLOCK_SLOT"
	outerVariable    = "QUORUMLOCK_OUTER_OWNERS"
)

// environ returns the environment of the command. It drops the variables of an outer run, because a
// program that uses the first of two equal variables would use the token of the wrong lock.
func environ(lease *quorumlock.Lease, slots bool) []string {
	all := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		switch name {
		case nameVariable, tokenVariable, deadlineVariable, ownerVariable, slotVariable, outerVariable:
			return true
		}
		return false
	})
	all = append(all,
		nameVariable+"="+lease.Name(),
		tokenVariable+"="+strconv.FormatUint(lease.Token(), 10),
		deadlineVariable+"="+lease.ValidUntil().Format(time.RFC3339Nano),
		ownerVariable+"="+string(lease.Owner()))
	if outer := outerOwners(); len(outer) > 0 {
		all = append(all, outerVariable+"="+strings.Join(outer, " "))
	}
	if slots {
		all = append(all, slotVariable+"="+strconv.Itoa(lease.Slot()))
	}
	return all
}
