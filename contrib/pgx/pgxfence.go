// Package pgxfence keeps fencing tokens in PostgreSQL with pgx (github.com/jackc/pgx/v5), without
// database/sql. It is package fence for programs with transactions of type pgx.Tx, such as those
// with code of sqlc for pgx:
//
//	table, err := pgxfence.NewSQL("") // table.Migration() is one of your migrations
//	...
//	err = quorumlock.Do(ctx, lock, func(ctx context.Context) error {
//		return table.RunInTx(ctx, pool, "invoice:1042", func(tx pgx.Tx) error {
//			return queries.WithTx(tx).PayInvoice(ctx, 1042) // or your own statement
//		}) // errors.Is(err, fence.ErrStale): a later holder has the lock
//	})
//
// The errors, the promise and the isolation levels are those of package fence. At REPEATABLE READ
// and SERIALIZABLE, run the transaction again after an error with the code 40001.
//
// For a pgx.Batch, package fence has the statements as text: see the methods of [fence.SQL] and
// [fence.TokenColumn] that return a [fence.Statement].
package pgxfence

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/jackc/pgx/v5"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/fence"
)

// DB runs a statement. It is a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx, or a type that wraps one,
// such as the DBTX of sqlc.
type DB interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Beginner begins a transaction. It is a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type Beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// SQL is [fence.SQL] with pgx. It is safe for concurrent use; its zero value is not usable.
type SQL struct{ fence *fence.SQL }

// NewSQL returns a fence over a table; an empty name means quorumlock_fence. The name may begin
// with a schema and a dot. NewSQL does no I/O.
func NewSQL(table string) (*SQL, error) {
	f, err := fence.NewSQL(fence.Postgres, table)
	if err != nil {
		return nil, err
	}
	return &SQL{f}, nil
}

// Migration returns the statement that creates the table if it does not exist.
func (s *SQL) Migration() string { return s.fence.Migration() }

// Mark records the token of a new holder: see [fence.SQL.Mark]. From its commit on, every lower
// token is refused: at once, unless db is a transaction.
func (s *SQL) Mark(ctx context.Context, db DB, resource string, token uint64) error {
	st, err := s.fence.MarkStatement(resource, token)
	return run(ctx, db, st, err)
}

// Check refuses the transaction of a stale holder: see [fence.SQL.Check]. Make it the first
// statement of the transaction of the writes. Roll back after an error.
func (s *SQL) Check(ctx context.Context, tx pgx.Tx, resource string, token uint64) error {
	st, err := s.fence.CheckStatement(resource, token)
	return run(ctx, tx, st, err)
}

// RunInTx runs fn in a transaction of the holder of a lock, and commits it. ctx carries the token:
// see [fence.SQL.RunInTx]. db is a *pgxpool.Pool or a *pgx.Conn. With a pgx.Tx, fn runs in a
// savepoint, and the row stays locked until the end of that transaction.
func (s *SQL) RunInTx(ctx context.Context, db Beginner, resource string, fn func(tx pgx.Tx) error) error {
	return runInTx(ctx, db, fn, func(token uint64) (fence.Statement, error) { return s.fence.MarkStatement(resource, token) })
}

// TokenColumn is [fence.TokenColumn] with pgx. It is safe for concurrent use; its zero value is not usable.
type TokenColumn struct{ fence *fence.TokenColumn }

// NewTokenColumn returns a fence over the rows of a table of your program. NewTokenColumn does no I/O.
func NewTokenColumn(c fence.Columns) (*TokenColumn, error) {
	f, err := fence.NewTokenColumn(fence.Postgres, c)
	if err != nil {
		return nil, err
	}
	return &TokenColumn{f}, nil
}

// Migration returns the statement that adds the column of the token. It fails if the column exists.
func (r *TokenColumn) Migration() string { return r.fence.Migration() }

// Mark records the token of a new holder in the row: see [fence.TokenColumn.Mark].
func (r *TokenColumn) Mark(ctx context.Context, db DB, key any, token uint64) error {
	st, err := r.fence.MarkStatement(key, token)
	return run(ctx, db, st, err)
}

// Check refuses the transaction of a stale holder: see [fence.TokenColumn.Check].
func (r *TokenColumn) Check(ctx context.Context, tx pgx.Tx, key any, token uint64) error {
	st, err := r.fence.CheckStatement(key, token)
	return run(ctx, tx, st, err)
}

// Set writes columns of a row unless the token is stale. It needs no transaction: see
// [fence.TokenColumn.Set].
func (r *TokenColumn) Set(ctx context.Context, db DB, key any, token uint64, columns map[string]any) error {
	st, err := r.fence.SetStatement(key, token, columns)
	return run(ctx, db, st, err)
}

// RunInTx is [SQL.RunInTx] for the row with a key: see [fence.TokenColumn.RunInTx].
func (r *TokenColumn) RunInTx(ctx context.Context, db Beginner, key any, fn func(tx pgx.Tx) error) error {
	return runInTx(ctx, db, fn, func(token uint64) (fence.Statement, error) { return r.fence.MarkStatement(key, token) })
}

func runInTx(ctx context.Context, db Beginner, fn func(tx pgx.Tx) error, marked func(token uint64) (fence.Statement, error)) error {
	token, ok := fence.FromContext(ctx)
	switch {
	case ctx == nil:
		return fmt.Errorf("quorumlock: pgxfence: RunInTx: %w", quorumlock.ErrNilContext)
	case isNil(db):
		return misuse("quorumlock: pgxfence: RunInTx: the database is nil: use a *pgxpool.Pool or a *pgx.Conn")
	case fn == nil:
		return misuse("quorumlock: pgxfence: RunInTx: the function is nil: use the work of the transaction")
	case !ok:
		return misuse("quorumlock: pgxfence: RunInTx: the context has no fencing token: use the context of a lease, as in a function of quorumlock.Do, or fence.NewContext")
	}
	mark, err := marked(token)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := run(ctx, tx, mark, nil); err != nil {
			return err
		}
		return fn(tx)
	})
}

// run runs a statement, or returns err if it is not nil.
func run(ctx context.Context, db DB, s fence.Statement, err error) error {
	switch {
	case ctx == nil:
		return fmt.Errorf("quorumlock: pgxfence: %w", quorumlock.ErrNilContext)
	case isNil(db):
		return misuse("quorumlock: pgxfence: the database is nil: use a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx")
	case err != nil:
		return err
	}
	var seen int64
	if err := db.QueryRow(ctx, s.Text, s.Args...).Scan(&seen); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("quorumlock: pgxfence: %s: %w", s, err)
	}
	return s.Judge(seen)
}

// misuse is an error that matches quorumlock.ErrMisuse.
type misuse string

func (m misuse) Error() string { return string(m) }

// Is reports whether target is quorumlock.ErrMisuse.
func (misuse) Is(target error) bool { return target == quorumlock.ErrMisuse }

// isNil reports whether v is nil, or an interface with a nil pointer.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}
