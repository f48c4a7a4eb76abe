// Payments is an HTTP service that pays each invoice once. Set QUORUMLOCK_NODES, and DATABASE_URL
// to a PostgreSQL database. Then: curl -X POST localhost:8080/invoices/1042/pay
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/fence"
	"github.com/quorumlock/quorumlock/redlock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := redlock.DialEnv(quorumlock.WithWait(5 * time.Second))
	check(err)
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	check(err)
	table, err := fence.NewSQL(fence.Postgres, "")
	check(err)
	check(quorumlock.Do(ctx, client.Mutex("example:migration"), func(ctx context.Context) error { // one process at a time
		_, err := db.ExecContext(ctx, table.Migration()+"; CREATE TABLE IF NOT EXISTS payments (invoice TEXT)")
		return err
	}))
	http.HandleFunc("POST /invoices/{id}/pay", func(w http.ResponseWriter, r *http.Request) {
		invoice := "invoice:" + r.PathValue("id")
		err := quorumlock.Do(r.Context(), client.Mutex("example:"+invoice), func(ctx context.Context) error {
			return table.RunInTx(ctx, db, invoice, func(tx *sql.Tx) error { return pay(ctx, tx, invoice) })
		})
		if errors.Is(err, errPaid) {
			http.Error(w, err.Error(), http.StatusConflict)
		} else if err != nil { // no lock, a lost one, a later holder (fence.ErrStale), or the database
			log.Print(err)
			http.Error(w, "ask again: nothing is paid twice", http.StatusServiceUnavailable)
		}
	})
	listener, err := net.Listen("tcp", cmp.Or(os.Getenv("ADDR"), "localhost:8080"))
	check(err)
	fmt.Println("serving at", listener.Addr())
	server := new(http.Server)
	go server.Serve(listener) //nolint:errcheck // it ends with Shutdown
	<-ctx.Done()
	check(server.Shutdown(context.Background())) // current requests first, then their locks
	check(client.Shutdown(context.Background()))
}

var errPaid = errors.New("paid before")

func pay(ctx context.Context, tx *sql.Tx, invoice string) error {
	var n int
	if err := tx.QueryRowContext(ctx, "SELECT count(*) FROM payments WHERE invoice = $1", invoice).Scan(&n); err != nil {
		return err
	} else if n > 0 {
		return errPaid
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO payments VALUES ($1)", invoice)
	return err
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
