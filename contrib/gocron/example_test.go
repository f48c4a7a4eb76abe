package gocronlock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	gocronlock "github.com/quorumlock/quorumlock/contrib/gocron"
	"github.com/quorumlock/quorumlock/election"
)

func ExampleNewLocker() {
	client, stop := connect()
	defer stop()

	// Another process runs the job at the same tick: it holds the lock.
	lease, err := client.Mutex("jobs:report").Lock(context.Background())
	if err != nil {
		panic(err)
	}
	defer lease.Unlock(context.Background()) //nolint:errcheck // the keys are gone at their TTL

	locker, err := gocronlock.NewLocker(client.Lockers("jobs:"), 24*time.Hour)
	if err != nil {
		panic(err)
	}
	failed := gocron.AfterJobRunsWithError(func(id uuid.UUID, job string, err error) {
		locker.Failed(id, job, err) // it may run again within the period
		fmt.Println(job, "failed:", err)
	})
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker),
		// logs an outage
		gocron.WithGlobalJobOptions(gocron.WithEventListeners(gocronlock.LogSkips(nil), failed)))
	if err != nil {
		panic(err)
	}
	ran := make(chan string)
	for _, job := range []string{"report", "cleanup"} {
		_, err := scheduler.NewJob(gocron.CronJob("0 3 * * *", false), gocron.NewTask(func() { ran <- job }),
			gocron.WithName(job), gocron.WithStartAt(gocron.WithStartImmediately()))
		if err != nil {
			panic(err)
		}
	}
	scheduler.Start()
	fmt.Println("ran here:", <-ran)
	_ = scheduler.Shutdown()
	// Output:
	// ran here: cleanup
}

func ExampleNewElector() {
	client, stop := connect()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())

	elector, err := gocronlock.NewElector(election.New(client.Mutex("jobs:leader"), "10.0.0.7"), 50*time.Millisecond)
	if err != nil {
		panic(err)
	}
	resigned := make(chan error)
	go func() { resigned <- elector.Run(ctx) }()

	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
	if err != nil {
		panic(err)
	}
	ran := make(chan string, 10)
	if _, err := scheduler.NewJob(gocron.DurationJob(100*time.Millisecond), gocron.NewTask(func() { ran <- "report" })); err != nil {
		panic(err)
	}
	scheduler.Start()
	fmt.Println("the leader ran:", <-ran)
	fmt.Println("this process leads:", elector.IsLeader(ctx) == nil)

	_ = scheduler.Shutdown() // first, so that no job runs when another process leads
	cancel()
	fmt.Println(<-resigned)
	// Output:
	// the leader ran: report
	// this process leads: true
	// context canceled
}
