package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quorumlock/quorumlock/examples/internal/try"
	"github.com/quorumlock/quorumlock/internal/wire"
)

// The test plays a Java client that holds the lock until this client waits: it writes the owner's
// hash, and publishes the release.
func Example() {
	try.Main(func() {
		ctx := context.Background()
		for _, url := range os.Args[1:] {
			o, err := redis.ParseURL(url)
			if err != nil {
				fmt.Println(err)
				return
			}
			java := redis.NewClient(o)
			defer java.Close() //nolint:errcheck // the test has ended
			java.HSet(ctx, "orders", "8b5ae4fd-0f9e-4ad8-9a6a-0f4ae2f1d2a7:1", 1)
			go func() {
				for java.Exists(ctx, wire.QueueKey("orders")).Val() == 0 {
					time.Sleep(10 * time.Millisecond)
				}
				java.Del(ctx, "orders")
				java.Publish(ctx, "redisson_lock__channel:{orders}", 0)
			}()
		}
		main()
	})
	// Output:
	// a Java client has it: true
	// then this client
}
