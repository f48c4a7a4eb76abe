package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// Statement is the statement of a Mark, Check or Set as text: for drivers and mappers outside
// database/sql, and for batches. Run Text with Args, and pass the result to Judge.
type Statement struct {
	Text string // one statement, with the placeholders of the dialect
	Args []any  // int64, string, and the caller's own values

	dialect  Dialect
	does     string // "Mark of ..."
	resource string
	token    uint64
	inserts  bool // it sets a token if there is none
}

// String returns a description of the statement, for errors.
func (s Statement) String() string { return s.does }

// Judge returns a *[StaleError] if the token is stale, [ErrMissing] if there is none to compare
// with, and nil otherwise. seen is the number in the only row that the statement returned, 0
// without a row; with MySQL the LastInsertId. After an error of a Check, roll the transaction back.
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
