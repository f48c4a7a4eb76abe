#!/usr/bin/env bash
# River: the worker's NextRetry does not count for a job that a middleware has refused.
#
# Expected: NextRetry of a worker schedules the next try of each failed attempt of its jobs; the client's RetryPolicy is for workers
#           without one.
# Seen:     if a middleware returns an error without calling the worker, as one that finds a lock held, the client's policy
#           schedules the next try: after a second, not after a day. An error that it returns after the worker's nil counts as the
#           worker's own.
# Package:  github.com/riverqueue/river v0.51.2 with its riversqlite, modernc.org/sqlite v1.61.1
# Date:     2026-11-29
. "$(dirname "$0")/lib.bash"
program github.com/riverqueue/river@v0.51.2 github.com/riverqueue/river/riverdriver/riversqlite@v0.51.2 \
	github.com/riverqueue/river/rivertype@v0.51.2 modernc.org/sqlite@v1.61.1 <<'END'
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	_ "modernc.org/sqlite"
)

type args struct {
	Fails string `json:"fails"`
}

func (args) Kind() string { return "job" }

type worker struct{ river.WorkerDefaults[args] }

func (worker) NextRetry(*river.Job[args]) time.Time { return time.Now().Add(24 * time.Hour) }

func (worker) Work(_ context.Context, job *river.Job[args]) error {
	if job.Args.Fails == "in the worker" {
		return errors.New("failed")
	}
	return nil
}

// middleware fails before or after the worker.
func middleware(ctx context.Context, job *rivertype.JobRow, work func(context.Context) error) error {
	fails := string(job.EncodedArgs)
	if strings.Contains(fails, "before") {
		return errors.New("refused")
	}
	if err := work(ctx); err != nil || !strings.Contains(fails, "after") {
		return err
	}
	return errors.New("failed afterwards")
}

func main() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", os.Args[1])
	check(err)
	db.SetMaxOpenConns(1)
	quiet := slog.New(slog.DiscardHandler)
	migrator, err := rivermigrate.New(riversqlite.New(db), &rivermigrate.Config{Logger: quiet})
	check(err)
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	check(err)
	workers := river.NewWorkers()
	river.AddWorker(workers, worker{})
	client, err := river.NewClient(riversqlite.New(db), &river.Config{
		Logger: quiet, Workers: workers, Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}},
		Middleware: []rivertype.Middleware{river.WorkerMiddlewareFunc(middleware)},
	})
	check(err)
	failed, stop := client.Subscribe(river.EventKindJobFailed)
	defer stop()
	check(client.Start(ctx))
	for _, fails := range []string{"in the worker", "after the worker", "before the worker"} {
		inserted, err := client.Insert(ctx, args{fails}, nil)
		check(err)
		for event := range failed {
			if event.Job.ID == inserted.Job.ID {
				fmt.Printf("an error %s: the next try is a day later: %t\n", fails, time.Until(event.Job.ScheduledAt) > 23*time.Hour)
				break
			}
		}
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
END
recorded "$(timeout 60 "$program" "$work/river.sqlite" 2>&1)" <<'END'
an error in the worker: the next try is a day later: true
an error after the worker: the next try is a day later: true
an error before the worker: the next try is a day later: false
END
