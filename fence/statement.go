package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Statement is what Mark, Check or Set runs, as text: for drivers and mappers that do not run under
// database/sql, and for batches. Run Text with Args, and give what it returns to Judge.
type Statement struct {
	Text string // one statement, with the placeholders of the dialect
	Args []any  // int64, string, and the values that the caller gave

	dialect  Dialect
	does     string // "Mark of ..."
	resource string
	token    uint64
	inserts  bool // it leaves a token wherever there was none
}

// String returns what the statement does, for errors.
func (s Statement) String() string { return s.does }

// Judge returns nil unless the token is stale or missing. seen is what the statement returned: the
// number in its only row, or 0 if it returned no row. With MySQL it is the LastInsertId. After an
// error of a Check, roll the transaction back.
func (s Statement) Judge(seen int64) error {
	if s.inserts {
		seen = max(seen, int64(s.token)) // 0: MySQL has inserted the row
	}
	return judge(s.resource, s.token, uint64(seen))
}

// run runs the statement with database/sql.
func (s Statement) run(ctx context.Context, db DB) error {
	seen, err := s.seen(ctx, db)
	if err != nil {
		return fmt.Errorf("quorumlock: fence: %s: %w", s.does, err)
	}
	return s.Judge(seen)
}

// seen returns the key's token after the statement; 0 if the key does not exist or has no token.
func (s Statement) seen(ctx context.Context, db DB) (seen int64, err error) {
	if s.dialect == MySQL {
		result, err := db.ExecContext(ctx, s.Text, s.Args...)
		if err != nil {
			return 0, err
		}
		return result.LastInsertId()
	}
	err = db.QueryRowContext(ctx, s.Text, s.Args...).Scan(&seen)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return seen, err
}
