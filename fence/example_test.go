package fence_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/fence"
	"github.com/quorumlock/quorumlock/locktest"
)

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// connect stands in for redis.NewClient(...): a server in the process.
func connect() (*redis.Client, func()) {
	server, err := miniredis.Run()
	exitOn(err)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	return client, func() {
		exitOn(client.Close())
		server.Close()
	}
}

func ExampleSQL_Migration() {
	table, err := fence.NewSQL(fence.Postgres, "")
	exitOn(err)
	fmt.Println(table.Migration())
	// Output: CREATE TABLE IF NOT EXISTS "quorumlock_fence" ("resource" TEXT NOT NULL PRIMARY KEY, "token" BIGINT NOT NULL)
}

func ExampleTokenColumn_Migration() {
	accounts, err := fence.NewTokenColumn(fence.MySQL, fence.Columns{Table: "accounts", Key: "id", Token: "fencing_token"})
	exitOn(err)
	fmt.Println(accounts.Migration())
	// Output: ALTER TABLE `accounts` ADD COLUMN `fencing_token` BIGINT NOT NULL DEFAULT 0
}

// A holder is paused past its lease. Another one marks its own token, and the late write of the
// first is refused.
func ExampleRedis() {
	client, stop := connect()
	defer stop()
	ctx, lock := context.Background(), locktest.New("invoice:1042")
	invoices, err := fence.NewRedis(client, 0)
	exitOn(err)

	paused, err := lock.Lock(ctx)
	exitOn(err)
	exitOn(invoices.Mark(ctx, "invoice:1042", paused.Token()))
	lock.Lose() // it is paused, and its lease ends

	next, err := lock.Lock(ctx)
	exitOn(err)
	exitOn(invoices.Mark(ctx, "invoice:1042", next.Token()))

	err = invoices.Set(ctx, "invoice:1042", paused.Token(), "paid by the first", 0) // it wakes up
	fmt.Println(errors.Is(err, fence.ErrStale))
	fmt.Println(invoices.Set(ctx, "invoice:1042", next.Token(), "paid by the second", 0))
	// Output:
	// true
	// <nil>
}

func ExampleGuard() {
	client, stop := connect()
	defer stop()
	ctx := context.Background()
	stock, err := fence.NewRedis(client, 0)
	exitOn(err)

	take := fence.Guard(`return redis.call('DECRBY', KEYS[1], ARGV[1])`)
	exitOn(client.Set(ctx, "{shelf}:left", 10, 0).Err())
	exitOn(stock.Mark(ctx, "shelf", 7))
	fmt.Println(stock.Run(ctx, take, "shelf", 7, []string{"{shelf}:left"}, 3).Int())
	fmt.Println(stock.Run(ctx, take, "shelf", 6, []string{"{shelf}:left"}, 3).Int())
	// Output:
	// 7 <nil>
	// 0 quorumlock: fence: the fencing token 6 of "shelf" is stale: a later holder has 7
}

func ExampleMiddleware() {
	perInvoice := func(r *http.Request) string { return r.URL.Path }
	server := httptest.NewServer(fence.Middleware(new(fence.Memory), perInvoice)(http.HandlerFunc(
		func(w http.ResponseWriter, r *http.Request) {
			token, _ := fence.FromContext(r.Context())
			fmt.Println("written with token", token)
		})))
	defer server.Close()

	client := http.Client{Transport: fence.Transport(nil)}
	for _, token := range []uint64{7, 8, 7} { // that of lease.Token()
		ctx := fence.NewContext(context.Background(), token)
		r, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL+"/invoices/1042", strings.NewReader("paid"))
		exitOn(err)
		response, err := client.Do(r)
		exitOn(err)
		exitOn(response.Body.Close())
		if err := fence.CheckResponse(response); err != nil {
			fmt.Println(response.Status, errors.Is(err, fence.ErrStale))
		}
	}
	// Output:
	// written with token 7
	// written with token 8
	// 412 Precondition Failed true
}

// A Store is the memory of a resource of your own. Memory is for one process, Redis and SQL.Store
// for several.
func ExampleStore() {
	client, stop := connect()
	defer stop()
	invoices, err := fence.NewSQL(fence.Postgres, "")
	exitOn(err)
	shared, err := fence.NewRedis(client, 0)
	exitOn(err)
	_ = invoices.Store(nil) // of a *sql.DB

	for _, store := range []fence.Store{new(fence.Memory), shared} {
		for _, token := range []uint64{7, 8, 7} {
			leave, err := store.Enter(context.Background(), "printer", token)
			if stale, ok := errors.AsType[*fence.StaleError](err); ok {
				fmt.Println(stale.Token, "comes too late: it has seen", stale.Seen)
				continue
			}
			exitOn(err)
			leave() // when the write is done
		}
	}
	// Output:
	// 7 comes too late: it has seen 8
	// 7 comes too late: it has seen 8
}
