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
	Place   int           // if refused: the waiter's place in line, from 0; -1 if it has none
}

// Acquired reads the reply to Acquire. The error is [quorumlock.ErrQuarantined] if the restart guard
// kept the node from granting: nothing has changed there.
func (r Reply) Acquired() (Answer, error) {
	fields, err := r.integers(3)
	if err != nil {
		return Answer{}, err
	}
	switch status, n := fields[0], fields[1]; {
	case status == 0:
		return Answer{TTL: max(time.Duration(n)*time.Millisecond, 0), Place: int(fields[2])}, nil
	case (status == 1 || status == 2) && n > 0:
		return Answer{Granted: true, Again: status == 2, Token: uint64(n), Place: -1}, nil
	case status == 3 && n > 0:
		return Answer{}, fmt.Errorf("%w: it grants again in %v", quorumlock.ErrQuarantined, time.Duration(n)*time.Millisecond)
	}
	return Answer{}, r.unexpected()
}

// Done reads the reply to Raise, Renew, Leave and ForceRelease: whether the script did it.
func (r Reply) Done() (bool, error) {
	n, err := r.integer()
	return n == 1, err
}

// Released reads the reply to Release: the entries that are left, and whether the one to leave was
// held.
func (r Reply) Released() (left int, held bool, err error) {
	fields, err := r.integers(2)
	if err != nil {
		return 0, false, err
	}
	return int(max(fields[0], 0)), fields[0] >= 0, nil
}

// Yielded reads the reply to Yield: whether the lock is free and the yielder the first in line.
func (r Reply) Yielded() (open bool, err error) {
	fields, err := r.integers(2)
	return err == nil && fields[1] == 1, err
}

// Inspected reads the reply to Inspect.
func (r Reply) Inspected() (quorumlock.State, error) {
	if r.Err != nil {
		return quorumlock.State{}, r.Err
	}
	fields, ok := r.Value.([]any)
	if !ok || len(fields) != 6 {
		return quorumlock.State{}, r.unexpected()
	}
	owner, ok := fields[0].(string)
	count, ok2 := fields[1].(string)
	pttl, ok3 := fields[2].(int64)
	token, ok4 := fields[3].(string)
	waiting, ok5 := fields[4].(int64)
	line, err := r.line(fields[5])
	hold, err2 := strconv.Atoi(count)
	last, err3 := strconv.ParseUint(token, 10, 64)
	if !ok || !ok2 || !ok3 || !ok4 || !ok5 || err != nil || err2 != nil || err3 != nil {
		return quorumlock.State{}, r.unexpected()
	}
	return quorumlock.State{
		Owner:     quorumlock.Owner(owner),
		HoldCount: hold,
		TTL:       max(time.Duration(pttl)*time.Millisecond, 0),
		Token:     last,
		Waiting:   int(waiting),
		Line:      line,
	}, nil
}

// line reads waiters, each followed by its ticket.
func (r Reply) line(v any) ([]quorumlock.Waiter, error) {
	values, ok := v.([]any)
	if !ok || len(values)%2 != 0 {
		return nil, r.unexpected()
	}
	var line []quorumlock.Waiter
	for i := 0; i < len(values); i += 2 {
		owner, ok := values[i].(string)
		score, ok2 := values[i+1].(string)
		ticket, err := strconv.ParseFloat(score, 64)
		if !ok || !ok2 || err != nil {
			return nil, r.unexpected()
		}
		line = append(line, quorumlock.Waiter{Owner: quorumlock.Owner(owner), Since: time.UnixMicro(int64(ticket))})
	}
	return line, nil
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
