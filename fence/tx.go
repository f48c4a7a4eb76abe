package fence

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
)

// RunInTx runs fn in a transaction of the holder of a lock, and commits it. ctx carries the token,
// see [FromContext], as in a function of [quorumlock.Do]:
//
//	err = quorumlock.Do(ctx, lock, func(ctx context.Context) error {
//		return table.RunInTx(ctx, db, "invoice:1042", func(tx *sql.Tx) error {
//			... // reads and writes with tx
//		})
//	})
//
// The first statement of the transaction is [SQL.Mark]. It refuses a stale token with a
// *[StaleError], which matches [ErrStale], before fn is called. Then it locks the resource's row
// until the end of the transaction. So every earlier holder has committed before fn reads, or is
// refused, and no later holder can mark before the commit. Use tx to read the data that fn writes:
// a value that was read before RunInTx may have changed. A holder that reads outside RunInTx calls
// [SQL.Mark] first.
//
// If fn returns an error or panics, the transaction is rolled back, with its mark. RunInTx returns
// the error of fn, or that of the driver. A failed transaction is not repeated: see the isolation
// levels of [SQL]. When ctx is done, as after the loss of the lease, the transaction is rolled
// back. If it is done during the commit, the transaction may or may not be committed. fn must not
// commit or roll back tx. In MySQL, a statement that commits implicitly, such as ALTER TABLE, ends
// the protection.
func (s *SQL) RunInTx(ctx context.Context, db *sql.DB, resource string, fn func(tx *sql.Tx) error) error {
	return runInTx(ctx, db, fn, func(token uint64) (Statement, error) { return s.MarkStatement(resource, token) })
}

// RunInTx is [SQL.RunInTx] for the row with a key. It returns [ErrMissing] if there is no such row.
func (r *TokenColumn) RunInTx(ctx context.Context, db *sql.DB, key any, fn func(tx *sql.Tx) error) error {
	return runInTx(ctx, db, fn, func(token uint64) (Statement, error) { return r.MarkStatement(key, token) })
}

func runInTx(ctx context.Context, db *sql.DB, fn func(tx *sql.Tx) error, marked func(token uint64) (Statement, error)) error {
	token, ok := FromContext(ctx)
	switch {
	case ctx == nil:
		return fmt.Errorf("quorumlock: fence: RunInTx: %w", quorumlock.ErrNilContext)
	case db == nil:
		return errs.Misuse("quorumlock: fence: RunInTx: the database is nil: use a *sql.DB")
	case fn == nil:
		return errs.Misuse("quorumlock: fence: RunInTx: the function is nil: use the work of the transaction")
	case !ok:
		return errs.Misuse("quorumlock: fence: RunInTx: the context has no fencing token: use the context of a lease, as in a function of quorumlock.Do, or fence.NewContext")
	}
	mark, err := marked(token)
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("quorumlock: fence: RunInTx: begin: %w", err)
	}
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
	if err := mark.run(ctx, tx); err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("quorumlock: fence: RunInTx: commit: %w", err)
	}
	return nil
}
