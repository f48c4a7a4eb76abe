package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
)

// Run campaigns, and calls lead when this candidate leads. After a loss of the leadership or a
// Resign, Run campaigns again, behind the other waiters, until ctx is done. Run calls lead in its
// own goroutine, so lead never runs twice at a time. The ctx of lead is that of the [Term];
// [TermOf] returns that term.
//
// The lock is released after lead has returned: drain first. While lead winds up after the end of
// its ctx, the lock is kept and renewed, for a TTL at most. After that the lock is released, the
// next leader begins, and only the fencing token separates the two. Run still waits for lead;
// [Election.Health] reports the delay. The ctx of lead is done by then, so calls that drain need
// another one:
//
//	err := e.Run(ctx, func(ctx context.Context) error {
//		<-ctx.Done() // or serve until then
//		ctx = context.WithoutCancel(ctx)
//		drain, cancel := context.WithTimeout(ctx, 5*time.Second) // less than the TTL
//		defer cancel()
//		return server.Shutdown(drain)
//	})
//
// If lead returns while this candidate still leads, Run returns lead's result, joined with
// [quorumlock.ErrLost] if the release finds that the lock was lost. If lead returns after a loss or
// Resign has cancelled its ctx, Run continues, and logs an error other than the context's. If ctx
// is done, Run returns ctx's error, joined with such an error of lead. At the start of the client's
// Shutdown, Run resigns, and returns [quorumlock.ErrClosed], joined likewise. Run also returns the
// errors of Campaign. After the end of a positive [quorumlock.WithWait], Run campaigns again. If
// lead panics, the lock is released first.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context) error) error {
	if err := e.check(ctx); err != nil {
		return err
	}
	if lead == nil {
		return errs.Misuse("quorumlock: election: Run: the function is nil: use a function that does the work of the leader")
	}
	for {
		began := time.Now()
		t, locked, err := e.campaign(ctx, true)
		switch {
		case err != nil && !locked && ctx.Err() == nil && e.set.Wait > 0 && time.Since(began) >= e.set.Wait && errors.Is(err, context.DeadlineExceeded):
			continue // the end of WithWait
		case err != nil:
			return err
		}
		if again, err := t.serve(ctx, lead); !again {
			return err
		}
	}
}

// serve runs lead in the term. It returns true to campaign again, and otherwise the result of Run.
func (t *Term) serve(ctx context.Context, lead func(ctx context.Context) error) (again bool, err error) {
	var ended error // the reason if the term ended before lead returned
	func() {
		defer func() { // also if lead panics
			t.finished()
			<-t.over
		}()
		err = lead(t.Context())
		ended = t.Err()
	}()
	if ended == nil {
		if errors.Is(t.err, quorumlock.ErrLost) {
			err = errs.Join(err, t.err)
		}
		return false, err
	}
	if isEndOfContext(err) {
		err = nil
	}
	if ctx.Err() != nil {
		return false, errs.Join(ctx.Err(), err)
	}
	select {
	case <-t.election.lock.Client().Stopping():
		return false, errs.Join(quorumlock.ErrClosed, err)
	default:
	}
	if err != nil {
		t.election.set.Logger.Warn("quorumlock: the lead function failed after its leadership had ended, campaigning again", "lock", t.election.Name(), "token", t.Token(), "error", err)
	}
	return true, nil
}

// Health returns an error if the work of a leader continues more than grace after the end of its
// leadership. The lead function of Run has not returned, or the Term of Campaign was not resigned.
// It is for the health check of a process: restart a process that fails it. Health sends no
// request.
func (e *Election) Health(grace time.Duration) error {
	if e.err != nil {
		return e.err
	}
	t := e.latest()
	if t == nil || t.Err() == nil {
		return nil
	}
	select {
	case <-t.drained:
		return nil
	default:
	}
	t.mu.Lock()
	ended := t.ended
	t.mu.Unlock()
	if ended.IsZero() { // the keeper has not seen the end yet
		ended = time.Now()
	}
	if until := t.ValidUntil(); until.Before(ended) { // the process was paused
		ended = until
	}
	if late := time.Since(ended); late > grace {
		return fmt.Errorf("quorumlock: election: the leader of %q is still at work %v after its term has ended: return from the lead function, or call Resign, when the context is done", t.election.Name(), late.Round(time.Millisecond))
	}
	return nil
}
