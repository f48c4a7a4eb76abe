//go:build !unix

package main

import (
	"context"
	"errors"

	"github.com/quorumlock/quorumlock"
)

type signals struct{}

func catchSignals() signals { return signals{} }

func (signals) during(parent context.Context) (context.Context, func() int) {
	return parent, func() int { return 0 }
}

func hold(*quorumlock.Lease, signals, job) (ending, error) {
	return ending{}, &statusError{exitRunFailed, errors.New("run: it needs process groups and signals, which this system does not have: use a Unix")}
}

func isWatchdog([]string) bool { return false }

func watch() int { return exitRunFailed }

func isRenumber([]string) bool { return false }

func renumber([]string) int { return exitRunFailed }
