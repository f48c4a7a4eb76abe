package redlock

import (
	"errors"
	"strings"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs/refusal"
)

// fixOf returns the remedy for a refusal.
func fixOf(err error) string {
	if errors.Is(err, quorumlock.ErrQuarantined) {
		return "wait, and keep a client with the restart guard running: clients measure the quarantine"
	}
	r, _ := refusal.Of(err)
	return r.Fix
}

// refused reports whether an error is a server's answer, and not a failure to reach the server.
func refused(err error) bool {
	_, answered := refusal.Of(err)
	return answered || errors.Is(err, quorumlock.ErrQuarantined) || errors.Is(err, quorumlock.ErrSeveralServers)
}

// reason returns the error without the name of the node, because a finding already has the name.
func reason(n NodeReport, err error) string {
	_, why, _ := strings.Cut(err.Error(), n.Node+": ")
	return why
}
