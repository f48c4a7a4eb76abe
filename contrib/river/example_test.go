package riverlock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/quorumlock/quorumlock"
	riverlock "github.com/quorumlock/quorumlock/contrib/river"
	"github.com/quorumlock/quorumlock/internal/testkit"
)

func ExampleExclusive() {
	client, _, stop := testkit.Connect(3) // in place of redlock.Dial(urls)
	defer stop()

	one, err := riverlock.Exclusive(client.Lockers("myapp:customer:"), func(job *rivertype.JobRow) (string, bool) {
		return string(job.EncodedArgs), job.Kind == "bill" // other jobs need no lock
	}, 5*time.Second)
	if err != nil {
		panic(err)
	}
	_ = river.Config{Middleware: []rivertype.Middleware{one}} // of each client

	bill := func(customer string, work func(ctx context.Context) error) error { // River does this
		return one.Work(context.Background(), &rivertype.JobRow{Kind: "bill", EncodedArgs: []byte(customer)}, work)
	}
	nothing := func(context.Context) error { return nil }
	fmt.Println(bill("7", func(ctx context.Context) error {
		lease, _ := quorumlock.LeaseOf(ctx)
		fmt.Println("holds", lease.Name())
		fmt.Println("another job of customer 7:", bill("7", nothing))
		fmt.Println("a job of customer 8:", bill("8", nothing))
		return nil
	}))
	// Output:
	// holds myapp:customer:7
	// another job of customer 7: JobSnoozeError: 5s
	// a job of customer 8: <nil>
	// <nil>
}
