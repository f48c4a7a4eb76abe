package cronlock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"

	cronlock "github.com/quorumlock/quorumlock/contrib/cron"
)

func ExampleOnce() {
	client, stop := connect()
	defer stop()
	ctx := context.Background()

	c := cron.New()
	for range 2 { // stands for two processes with a cron of this job
		once := cronlock.Once(ctx, client.Mutex("jobs:report"), 24*time.Hour, cron.DiscardLogger)
		job := cron.NewChain(once).Then(cron.FuncJob(func() { fmt.Println("the report") }))
		if _, err := c.AddJob("0 3 * * *", job); err != nil {
			panic(err)
		}
	}
	for _, entry := range c.Entries() { // at 3 o'clock
		entry.WrappedJob.Run()
	}
	// Output:
	// the report
}

func ExampleOnceFunc() {
	client, stop := connect()
	defer stop()
	ctx := context.Background()

	job := cronlock.OnceFunc(ctx, client.Mutex("jobs:report"), 24*time.Hour, nil, func(ctx context.Context) error {
		fmt.Println("the report")
		return ctx.Err() // ctx is cancelled if the lock is lost
	})
	c := cron.New()
	if _, err := c.AddJob("0 3 * * *", job); err != nil {
		panic(err)
	}
	c.Entries()[0].Job.Run() // at 3 o'clock
	// Output:
	// the report
}
