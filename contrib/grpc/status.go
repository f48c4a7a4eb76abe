package grpclock

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/quorumlock/quorumlock"
)

// callError is an error of a call. The client gets its status. The error itself is for the server.
type callError struct {
	status *status.Status
	err    error
}

func (e *callError) Error() string              { return e.err.Error() }
func (e *callError) Unwrap() error              { return e.err }
func (e *callError) GRPCStatus() *status.Status { return e.status }

// refusal returns the error of a call whose lock was not acquired.
func refusal(ctx context.Context, name string, err error) error {
	few, ok := errors.AsType[*quorumlock.QuorumError](err)
	switch {
	case ctx.Err() != nil:
		return &callError{status.FromContextError(ctx.Err()), err}
	case errors.Is(err, quorumlock.ErrMisuse) && quorumlock.ValidateName(name) != nil:
		return badKey(err)
	case ok && isNoLock(err, few):
		return unusable(err)
	case errors.Is(err, quorumlock.ErrHeld) && !ok:
		return held(err)
	case ok, errors.Is(err, quorumlock.ErrClosed), errors.Is(err, quorumlock.ErrUnsent), errors.Is(err, quorumlock.ErrTooLate),
		errors.Is(err, context.Canceled): // the wait is over, and too few nodes have answered
		return &callError{retry(codes.Unavailable, "the lock of this call cannot be acquired now: try again", time.Second), err}
	}
	return unusable(err)
}

func held(err error) error {
	after := time.Second
	if held, ok := errors.AsType[*quorumlock.HeldError](err); ok && held.TTL > 0 {
		after = held.TTL
	}
	return &callError{retry(codes.Aborted, "another call has the lock of this call: try again", after), err}
}

func lost(err error) error {
	return &callError{status.New(codes.Internal, "the lock of this call was lost while the call ran: some of its work may be done"), err}
}

func badKey(err error) error {
	return &callError{status.New(codes.InvalidArgument, "this call has no valid key for its lock"), err}
}

func unusable(err error) error {
	return &callError{status.New(codes.Internal, "the lock of this call cannot be used"), err}
}

// retry returns a status with a RetryInfo.
func retry(code codes.Code, text string, after time.Duration) *status.Status {
	s := status.New(code, text)
	if with, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(after)}); err == nil {
		return with
	}
	return s
}

// isNoLock reports whether the quorum failed only because the name is no lock, or of another kind
// or size: then a retry does not help.
func isNoLock(err error, few *quorumlock.QuorumError) bool {
	for _, n := range few.Nodes {
		if !errors.Is(n, quorumlock.ErrNotALock) && !errors.Is(n, quorumlock.ErrWrongKind) && !errors.Is(n, quorumlock.ErrMismatch) {
			return false
		}
	}
	return len(few.Nodes) > 0 && !errors.Is(err, quorumlock.ErrHeld)
}
