package main

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// distance measures lock and unlock of one caller against the round trip to the quorum-th nearest
// node, in turns: a delay of one delays the other.
func (j job) distance(ctx context.Context, d design) (a answer, err error) {
	c, err := d.open(j.Addrs, 1)
	if err != nil {
		return answer{}, err
	}
	pingers := plainClients(j.Addrs)
	defer func() { err = errors.Join(err, c.close(), closeClients(pingers)) }()

	var locks, trips sample
	from := time.Now().Add(j.Warm)
	to := from.Add(j.Time)
	const warmTurns, leastTurns = 2, 3 // far nodes take longer than the warm-up to answer twice
	for turn := 0; turn < warmTurns+leastTurns || time.Now().Before(to); turn++ {
		trip, err := quorumTrip(ctx, pingers)
		if err != nil {
			return answer{}, err
		}
		took, err := lockUnlock(ctx, c, "far")
		if err != nil {
			return answer{}, err
		}
		if turn >= warmTurns && time.Now().After(from) {
			locks, trips = append(locks, took), append(trips, trip)
		}
	}
	lock, trip := locks.quantile(0.5), trips.quantile(0.5)
	return answer{Figures: figures{p50: millis(lock), p99: millis(locks.quantile(0.99)), roundTrip: millis(trip),
		roundTripsALock: float64(lock) / float64(max(2*trip, 1))}}, nil
}

// quorumTrip returns the time until a majority of the nodes has answered a write. A durable node
// syncs the write like a lock's. quorumTrip waits for all nodes, so that the next turn begins with
// idle connections.
func quorumTrip(ctx context.Context, nodes []*redis.Client) (time.Duration, error) {
	start := time.Now()
	answers := make(chan error, len(nodes))
	for _, n := range nodes {
		go func() { answers <- n.Set(ctx, "trip", 1, time.Minute).Err() }()
	}
	var trip time.Duration
	var err error
	for i := range nodes {
		err = errors.Join(err, <-answers)
		if i == len(nodes)/2 {
			trip = time.Since(start)
		}
	}
	return trip, err
}
