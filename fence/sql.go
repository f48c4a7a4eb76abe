package fence

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/internal/errs"
	"github.com/quorumlock/quorumlock/internal/settings"
)

// defaultTable is the table of NewSQL if none is named.
const defaultTable = "quorumlock_fence"

// SQL keeps the tokens of resources in a table of its own, with one row for each resource. It is
// safe for concurrent use; its zero value is not usable.
//
// # Isolation levels
//
// Check is a write, at every level. It locks the resource's row until the transaction ends, even if
// it changes nothing. So transactions that check the same resource run one after the other, and
// each compares with the token that the one before has committed:
//
//   - Postgres, READ COMMITTED: Check waits for the row, and computes with its newest version.
//   - Postgres, REPEATABLE READ and SERIALIZABLE: if the row has changed since the transaction
//     began to read, Check fails with a serialization error (40001). Roll back, and run the
//     transaction again; it then reads the newest token.
//   - MySQL and MariaDB with InnoDB, all levels: a write reads the newest version of the row,
//     whatever the snapshot shows.
//   - SQLite: there is one writer at a time. If another one has written since the transaction began
//     to read, Check fails with SQLITE_BUSY. Roll back, and run the transaction again.
//
// Make Check the first statement of the transaction. The reads after it then see everything that
// earlier holders have committed, at every level.
//
// A holder that is paused between Check and Commit keeps the row locked, and Mark of the next
// holder waits. Bound that with the database's own limits: idle_in_transaction_session_timeout in
// Postgres; in MySQL and MariaDB, Mark fails after innodb_lock_wait_timeout, and wait_timeout ends
// the idle connection.
type SQL struct {
	column column
	table  string
}

// NewSQL returns a fence over a table, quorumlock_fence if the name is empty. A schema may precede
// the name, with a dot. The error names the wrong argument. NewSQL does no I/O; [SQL.Migration]
// creates the table.
func NewSQL(d Dialect, table string) (*SQL, error) {
	if table == "" {
		table = defaultTable
	}
	c, err := newColumn(d, table, "resource", "token")
	if err != nil {
		return nil, err
	}
	return &SQL{c, table}, nil
}

// Migration returns the statement that creates the table unless it exists.
func (s *SQL) Migration() string {
	kind, end := "TEXT", ""
	if s.column.dialect == MySQL {
		// Binary, so that no collation makes two resources one.
		kind, end = fmt.Sprintf("VARBINARY(%d)", maxResource), " ENGINE=InnoDB"
	}
	return fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (%s %s NOT NULL PRIMARY KEY, %s BIGINT NOT NULL)%s",
		s.column.table, s.column.key, kind, s.column.token, end)
}

// Mark records the token of a new holder, in one statement. Every lower token is refused from the
// commit on: at once if db is a *sql.DB. Call it at the start of the term, before the first read or
// write.
//
// If a higher token was marked, it returns a *[StaleError], which matches [ErrStale]; other errors
// are the driver's. A repeated call with the same token succeeds. When ctx is done first, the token
// may or may not be marked.
func (s *SQL) Mark(ctx context.Context, db DB, resource string, token uint64) error {
	mark, err := s.MarkStatement(resource, token)
	if err := errs.Join(usable(ctx, db), err); err != nil {
		return err
	}
	return mark.run(ctx, db)
}

// MarkStatement returns the statement that Mark runs.
func (s *SQL) MarkStatement(resource string, token uint64) (Statement, error) {
	if err := errs.Join(checkResource(resource), checkToken(token)); err != nil {
		return Statement{}, err
	}
	does := fmt.Sprintf("Mark of %q in the table %s", resource, s.table)
	mark := s.column.insert(resource, int64(token)).done(does, resource, token)
	mark.inserts = true
	return mark, nil
}

// Check refuses the transaction of a stale holder, in one statement. tx is the transaction of the
// writes that follow: a *sql.Tx, or a type with its methods Commit and Rollback. Check refuses a
// *sql.DB and a *sql.Conn, also inside another type. If your own BEGIN statement starts the
// transaction on a *sql.Conn, wrap the Conn in a type with these methods.
//
// If a higher token was marked, it returns a *[StaleError], which matches [ErrStale]; if none was,
// [ErrMissing]; other errors are the driver's. After an error, roll back. A token that is higher
// than the marked one is marked.
func (s *SQL) Check(ctx context.Context, tx DB, resource string, token uint64) error {
	check, err := s.CheckStatement(resource, token)
	if err := errs.Join(transaction(ctx, tx), err); err != nil {
		return err
	}
	return check.run(ctx, tx)
}

// CheckStatement returns the statement that Check runs. Run it in the transaction of the writes.
func (s *SQL) CheckStatement(resource string, token uint64) (Statement, error) {
	if err := errs.Join(checkResource(resource), checkToken(token)); err != nil {
		return Statement{}, err
	}
	does := fmt.Sprintf("Check of %q in the table %s", resource, s.table)
	return s.column.check(resource, int64(token), nil).done(does, resource, token), nil
}

// Store returns a [Store] for [Middleware] that marks in db.
func (s *SQL) Store(db *sql.DB) Store { return sqlStore{s, db} }

type sqlStore struct {
	fence *SQL
	db    *sql.DB
}

func (s sqlStore) Enter(ctx context.Context, resource string, token uint64) (func(), error) {
	return func() {}, s.fence.Mark(ctx, s.db, resource, token)
}

// judge returns the error of a caller's token, given the token that the resource has now.
func judge(resource string, token, seen uint64) error {
	switch {
	case seen == 0:
		return fmt.Errorf("%w: %q", ErrMissing, resource)
	case seen > token:
		return &StaleError{Resource: resource, Token: token, Seen: seen}
	}
	return nil
}

// usable returns an error unless a statement can run.
func usable(ctx context.Context, db DB) error {
	if ctx == nil {
		return fmt.Errorf("quorumlock: fence: %w", quorumlock.ErrNilContext)
	}
	if settings.IsNil(db) {
		return errs.Misuse("quorumlock: fence: the database is nil: use a *sql.DB, a *sql.Conn or a *sql.Tx")
	}
	return nil
}

// transaction returns an error unless tx can lock a row for the statements that follow.
func transaction(ctx context.Context, tx DB) error {
	if err := usable(ctx, tx); err != nil {
		return err
	}
	if _, ok := tx.(interface {
		Commit() error
		Rollback() error
	}); !ok {
		return errs.Misusef("quorumlock: fence: Check was given a %T, which is no transaction, so that the row's lock would end with the statement: use the *sql.Tx of the writes", tx)
	}
	return nil
}
