package pgxfence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/quorumlock/quorumlock"
	pgxfence "github.com/quorumlock/quorumlock/contrib/pgx"
	"github.com/quorumlock/quorumlock/fence"
)

func ExampleSQL_Migration() {
	table, err := pgxfence.NewSQL("")
	fmt.Println(table.Migration(), err)
	// Output: CREATE TABLE IF NOT EXISTS "quorumlock_fence" ("resource" TEXT NOT NULL PRIMARY KEY, "token" BIGINT NOT NULL) <nil>
}

// It needs a database, so it is only compiled here; the tests of this package run the same calls.
func ExampleSQL_RunInTx() {
	table, err := pgxfence.NewSQL("")
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = func(ctx context.Context, lock quorumlock.Locker, pool *pgxpool.Pool) error {
		err := quorumlock.Do(ctx, lock, func(ctx context.Context) error {
			return table.RunInTx(ctx, pool, "invoice:1042", func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "UPDATE invoices SET paid = true WHERE id = 1042")
				return err
			})
		})
		if errors.Is(err, fence.ErrStale) {
			return fmt.Errorf("somebody else works on this invoice by now: %w", err)
		}
		return err
	}
}

// By hand: Mark at the start of the term, and Check first in each transaction.
func ExampleSQL_Check() {
	table, err := pgxfence.NewSQL("")
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = func(pool *pgxpool.Pool, lease *quorumlock.Lease) error {
		ctx := lease.Context()
		if err := table.Mark(ctx, pool, "invoice:1042", lease.Token()); err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := table.Check(ctx, tx, "invoice:1042", lease.Token()); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "UPDATE invoices SET paid = true WHERE id = 1042")
			return err
		})
	}
}

// Set checks and writes in one statement, without a transaction.
func ExampleNewTokenColumn() {
	accounts, err := pgxfence.NewTokenColumn(fence.Columns{Table: "accounts", Key: "id", Token: "fencing_token"})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = func(pool *pgxpool.Pool, lease *quorumlock.Lease) error {
		ctx := lease.Context()
		if err := accounts.Mark(ctx, pool, 42, lease.Token()); err != nil {
			return err
		}
		return accounts.Set(ctx, pool, 42, lease.Token(), map[string]any{"limit": 5000})
	}
	fmt.Println(accounts.Migration())
	// Output: ALTER TABLE "accounts" ADD COLUMN "fencing_token" BIGINT NOT NULL DEFAULT 0
}
