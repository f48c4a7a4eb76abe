package fence

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/quorumlock/quorumlock/internal/errs"
)

// Columns names the table and columns of rows that carry their own token. Names are as the database
// stores them; Postgres stores a name in lower case unless it was quoted.
type Columns struct {
	Table string // with or without its schema: "accounts", "bank.accounts"
	Key   string // the column that identifies a row: its primary key
	Token string // a BIGINT for the fencing token; see [TokenColumn.Migration]
}

// TokenColumn keeps the token of a row in the row itself, and refuses stale writes to it. It is safe
// for concurrent use; its zero value is not usable. The isolation levels of [SQL] apply, too.
type TokenColumn struct {
	column  column
	columns Columns
}

// NewTokenColumn returns a fence over the rows of your table. The error names the wrong argument. It
// does no I/O.
func NewTokenColumn(d Dialect, c Columns) (*TokenColumn, error) {
	col, err := newColumn(d, c.Table, c.Key, c.Token)
	if err != nil {
		return nil, err
	}
	return &TokenColumn{col, c}, nil
}

// Migration returns the statement that adds the column to the table. It fails if the column exists.
// Existing rows then have no token, and accept writes only after a Mark.
func (r *TokenColumn) Migration() string {
	return fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s BIGINT NOT NULL DEFAULT 0", r.column.table, r.column.token)
}

// Mark records the token of a new holder in the row, in one statement: see [SQL.Mark]. It returns
// [ErrMissing] if there is no such row: insert the row with the token of its lease instead.
func (r *TokenColumn) Mark(ctx context.Context, db DB, key any, token uint64) error {
	mark, err := r.MarkStatement(key, token)
	if err := errs.Join(usable(ctx, db), err); err != nil {
		return err
	}
	return mark.run(ctx, db)
}

// MarkStatement returns the statement that Mark runs.
func (r *TokenColumn) MarkStatement(key any, token uint64) (Statement, error) {
	return r.statement("Mark", key, token, r.column.mark(key, int64(token)))
}

// Check refuses the transaction of a stale holder, in one statement: see [SQL.Check]. It returns
// [ErrMissing] if the row does not exist or was never marked.
func (r *TokenColumn) Check(ctx context.Context, tx DB, key any, token uint64) error {
	check, err := r.CheckStatement(key, token)
	if err := errs.Join(transaction(ctx, tx), err); err != nil {
		return err
	}
	return check.run(ctx, tx)
}

// CheckStatement returns the statement that Check runs. Run it in the transaction of the writes.
func (r *TokenColumn) CheckStatement(key any, token uint64) (Statement, error) {
	return r.statement("Check", key, token, r.column.check(key, int64(token), nil))
}

// Set writes columns of a row unless the token is stale, in one statement, which needs no
// transaction. It returns a *[StaleError] if the row has a higher token, and [ErrMissing] if the
// row does not exist or was never marked. Even then, the row's triggers run. For a new value that
// depends on the old one, use [TokenColumn.Check] and a statement of your own. When ctx is done
// first, the columns may or may not be written.
func (r *TokenColumn) Set(ctx context.Context, db DB, key any, token uint64, columns map[string]any) error {
	set, err := r.SetStatement(key, token, columns)
	if err := errs.Join(usable(ctx, db), err); err != nil {
		return err
	}
	return set.run(ctx, db)
}

// SetStatement returns the statement that Set runs.
func (r *TokenColumn) SetStatement(key any, token uint64, columns map[string]any) (Statement, error) {
	if len(columns) == 0 {
		return Statement{}, errs.Misuse("quorumlock: fence: Set has no columns: name those to write, or use Mark")
	}
	set := make([]assignment, 0, len(columns))
	for _, name := range slices.Sorted(maps.Keys(columns)) {
		if !identifier.MatchString(name) {
			return Statement{}, errs.Misusef("quorumlock: fence: the column %.80q: use letters, digits and underscores, as the database stores the name", name)
		}
		if name == r.columns.Token || name == r.columns.Key {
			return Statement{}, errs.Misusef("quorumlock: fence: the column %q is the key or the token of the row: leave it out", name)
		}
		set = append(set, assignment{r.column.dialect.quote(name), columns[name]})
	}
	return r.statement("Set", key, token, r.column.check(key, int64(token), set))
}

func (r *TokenColumn) statement(call string, key any, token uint64, s *statement) (Statement, error) {
	if err := checkToken(token); err != nil {
		return Statement{}, err
	}
	resource := fmt.Sprintf("%s %v", r.columns.Table, key)
	return s.done(fmt.Sprintf("%s of %q", call, resource), resource, token), nil
}
