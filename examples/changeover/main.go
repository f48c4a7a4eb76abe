// Changeover moves a job from a lock of redsync to one of this library while old and new processes
// run: it does the job under both. Set QUORUMLOCK_NODES.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	pools "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock"
	"github.com/quorumlock/quorumlock/redlock"
)

// oldLock acquires the old lock. held ends when that lock may be lost; release releases it.
type oldLock func(ctx context.Context) (held context.Context, release func(), err error)

// both does the work under the old lock and the new one, in this order.
func both(ctx context.Context, old oldLock, lock quorumlock.Locker, work func(context.Context) error) error {
	held, release, err := old(ctx)
	if err != nil {
		return err
	}
	defer release() // after the new one
	return quorumlock.Do(held, lock, work)
}

func main() {
	ctx := context.Background()
	urls := strings.Split(os.Getenv("QUORUMLOCK_NODES"), ",")
	client, err := redlock.Dial(urls)
	check(err)
	var all []pools.Pool
	for _, url := range urls {
		options, err := redis.ParseURL(url)
		check(err)
		all = append(all, goredis.NewPool(redis.NewClient(options)))
	}
	const expiry = time.Second
	old := fromRedsync(redsync.New(all...), "example:report", expiry)
	check(both(ctx, old, client.Mutex("example:report:2"), func(ctx context.Context) error {
		time.Sleep(2 * expiry)
		fmt.Println("the job has both locks:", ctx.Err() == nil)
		return ctx.Err()
	}))
	check(client.Shutdown(ctx))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
