// Fenced writes to Postgres. A holder that was paused past its lease does no harm. Its arguments
// are the URL of the database, and URLs of Redis servers.
package main

import (
	"context"
	"database/sql"
	"log"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/fence"
	"github.com/quorumlock/quorumlock/redlock"
)

func main() {
	db, err := sql.Open("pgx", os.Args[1])
	check(err)
	client, err := redlock.Dial(os.Args[2:])
	check(err)
	table, err := fence.NewSQL(fence.Postgres, "") // table.Migration() is one of your migrations
	check(err)
	check(quorumlock.Do(context.Background(), client.Mutex("example:invoice:1042"), func(ctx context.Context) error {
		return table.RunInTx(ctx, db, "invoice:1042", func(tx *sql.Tx) error { // fence.ErrStale: a later holder is at work
			_, err := tx.ExecContext(ctx, "UPDATE invoices SET paid = true WHERE id = 1042")
			return err
		})
	}))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
