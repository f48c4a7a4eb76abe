// Fenced writes to Postgres. A holder that was paused past its lease does no harm. Its arguments
// are the URL of the database, and URLs of Redis servers.
package main

import (
	"context"
	"database/sql"
	"log"
	"os"

	_ "github.com/jackc/pgx/v5/stdlib"
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
	lease, err := client.Mutex("example:invoice:1042").Lock(context.Background())
	check(err)
	ctx, token := lease.Context(), lease.Token()
	check(table.Mark(ctx, db, "invoice:1042", token)) // from here on, earlier holders are refused
	tx, err := db.BeginTx(ctx, nil)
	check(err)
	check(table.Check(ctx, tx, "invoice:1042", token)) // fence.ErrStale: a later holder is at work
	_, err = tx.ExecContext(ctx, "UPDATE invoices SET paid = true WHERE id = 1042")
	check(err)
	check(tx.Commit())
	check(lease.Unlock(context.Background()))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
