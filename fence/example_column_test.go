package fence_test

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/fence"
)

// The rows of accounts have a column for the token: see ExampleRows_Migration. It needs a database,
// so it is only compiled here; integration/fencing runs TokenColumn on Postgres, MariaDB and SQLite.
func ExampleRows() {
	accounts, err := fence.NewTokenColumn(fence.Postgres, fence.Columns{Table: "accounts", Key: "id", Token: "fencing_token"})
	exitOn(err)

	_ = func(db *sql.DB, lease *quorumlock.Lease) error {
		err := accounts.Mark(lease.Context(), db, "1042", lease.Token())
		if err == nil {
			err = accounts.Set(lease.Context(), db, "1042", lease.Token(), map[string]any{"state": "closed"})
		}
		if errors.Is(err, fence.ErrStale) {
			return fmt.Errorf("somebody else works on this account by now: %w", err)
		}
		return err
	}
}
