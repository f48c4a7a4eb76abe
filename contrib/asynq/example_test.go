package asynqlock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/quorumlock/quorumlock"
	asynqlock "github.com/quorumlock/quorumlock/contrib/asynq"
	"github.com/quorumlock/quorumlock/internal/testkit"
)

func ExampleExclusive() {
	client, _, stop := testkit.Connect(3) // in place of redlock.Dial(urls)
	defer stop()

	one, err := asynqlock.Exclusive(client.Lockers("myapp:customer:"), func(task *asynq.Task) (string, bool) {
		return string(task.Payload()), task.Type() == "bill" // other tasks need no lock
	})
	if err != nil {
		panic(err)
	}
	mux := asynq.NewServeMux()
	mux.Use(one)
	bill := func(customer string) error { // asynq.Server does this
		return mux.ProcessTask(context.Background(), asynq.NewTask("bill", []byte(customer)))
	}
	mux.HandleFunc("bill", func(ctx context.Context, task *asynq.Task) error {
		if lease, ok := quorumlock.LeaseOf(ctx); ok && string(task.Payload()) == "7" {
			fmt.Println("holds", lease.Name())
			fmt.Println("another task of customer 7 is a failure:", asynqlock.IsFailure(bill("7")))
			fmt.Println("a task of customer 8:", bill("8"))
		}
		return nil
	})
	fmt.Println(bill("7"))
	_ = asynq.Config{ // of each server
		IsFailure:      asynqlock.IsFailure,
		RetryDelayFunc: asynqlock.RetryDelay(5*time.Second, nil),
	}
	// Output:
	// holds myapp:customer:7
	// another task of customer 7 is a failure: false
	// a task of customer 8: <nil>
	// <nil>
}
