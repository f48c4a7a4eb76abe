package scripts

import (
	"fmt"
	"strconv"
	"time"

	"github.com/quorumlock/quorumlock"
)

// Reply is what came back for one Call: the script's value, or why there is none.
type Reply struct {
	Value any
	Err   error
}

// Answer is a node's answer to Acquire.
type Answer struct {
	Granted bool
	Again   bool          // granted, and the owner had the lock already
	Token   uint64        // if granted: the token of this tenure at this node
	TTL     time.Duration // if refused: until the holder's key expires; 0 if there is no telling
}

// Acquired reads the reply to Acquire.
func (r Reply) Acquired() (Answer, error) {
	fields, err := r.integers(2)
	if err != nil {
		return Answer{}, err
	}
	switch status, n := fields[0], fields[1]; {
	case status == 0:
		return Answer{TTL: max(time.Duration(n)*time.Millisecond, 0)}, nil
	case (status == 1 || status == 2) && n > 0:
		return Answer{Granted: true, Again: status == 2, Token: uint64(n)}, nil
	}
	return Answer{}, r.unexpected()
}

// Done reads the reply to Raise, Renew and ForceRelease: whether the script did it.
func (r Reply) Done() (bool, error) {
	n, err := r.integer()
	return n == 1, err
}

// Released reads the reply to Release: the entries that are left, and whether the one to leave was
// held.
func (r Reply) Released() (left int, held bool, err error) {
	n, err := r.integer()
	return int(max(n, 0)), n >= 0 && err == nil, err
}

// Inspected reads the reply to Inspect.
func (r Reply) Inspected() (quorumlock.State, error) {
	if r.Err != nil {
		return quorumlock.State{}, r.Err
	}
	fields, ok := r.Value.([]any)
	if !ok || len(fields) != 4 {
		return quorumlock.State{}, r.unexpected()
	}
	owner, ok := fields[0].(string)
	count, ok2 := fields[1].(string)
	pttl, ok3 := fields[2].(int64)
	token, ok4 := fields[3].(string)
	hold, err := strconv.Atoi(count)
	last, err2 := strconv.ParseUint(token, 10, 64)
	if !ok || !ok2 || !ok3 || !ok4 || err != nil || err2 != nil {
		return quorumlock.State{}, r.unexpected()
	}
	return quorumlock.State{
		Owner:     quorumlock.Owner(owner),
		HoldCount: hold,
		TTL:       max(time.Duration(pttl)*time.Millisecond, 0),
		Token:     last,
	}, nil
}

func (r Reply) integer() (int64, error) {
	if r.Err != nil {
		return 0, r.Err
	}
	n, ok := r.Value.(int64)
	if !ok {
		return 0, r.unexpected()
	}
	return n, nil
}

func (r Reply) integers(want int) ([]int64, error) {
	if r.Err != nil {
		return nil, r.Err
	}
	values, ok := r.Value.([]any)
	if !ok || len(values) != want {
		return nil, r.unexpected()
	}
	ns := make([]int64, want)
	for i, v := range values {
		if ns[i], ok = v.(int64); !ok {
			return nil, r.unexpected()
		}
	}
	return ns, nil
}

func (r Reply) unexpected() error {
	return fmt.Errorf("unexpected reply %v: is another script behind a proxy answering?", r.Value)
}
